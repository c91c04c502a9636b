//! Requests to an endpoint of an authorization server: a form, and the client's authentication (RFC
//! 6749, 2.3). Token requests, introspection (RFC 7662) and revocation (RFC 7009) have this format.

use std::fmt;

use data_encoding::BASE64;
use url::form_urlencoded::{Serializer, byte_serialize};

/// The authentication of a client, with its secret.
#[derive(Clone, Copy)]
pub enum ClientAuthentication<'a> {
    /// `client_secret_basic`: id and secret are in the `Authorization` header.
    Basic(&'a str),
    /// `client_secret_post`: id and secret are in the form.
    Post(&'a str),
    /// `none`: a public client, with its id in the form.
    Public,
}

impl fmt::Debug for ClientAuthentication<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientAuthentication(<secret>)")
    }
}

/// A request with a form.
pub struct FormRequest {
    /// The body, `application/x-www-form-urlencoded`.
    pub form: String,
    /// The whole `Authorization` header; absent if the client authenticates in the form.
    pub authorization: Option<String>,
}

impl FormRequest {
    /// Makes the request of a client with these fields.
    pub fn new(
        fields: &[(&str, &str)],
        client_id: &str,
        authentication: ClientAuthentication<'_>,
    ) -> Self {
        let mut form = Serializer::new(String::new());
        form.extend_pairs(fields);
        let mut authorization = None;
        match authentication {
            ClientAuthentication::Basic(secret) => {
                authorization = Some(basic_authorization(client_id, secret));
            }
            ClientAuthentication::Post(secret) => {
                form.append_pair("client_id", client_id)
                    .append_pair("client_secret", secret);
            }
            ClientAuthentication::Public => {
                form.append_pair("client_id", client_id);
            }
        }
        Self {
            form: form.finish(),
            authorization,
        }
    }
}

impl fmt::Debug for FormRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FormRequest(<secret>)")
    }
}

/// Returns the `Authorization` header of a client. Id and secret are form-encoded before they are
/// joined (RFC 6749, 2.3.1).
fn basic_authorization(id: &str, secret: &str) -> String {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(id), encode(secret));
    format!("Basic {}", BASE64.encode(pair.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_authenticates_in_the_header_or_in_the_form() {
        let (id, secret) = ("we:ir", "s&t +");
        let request = |client| FormRequest::new(&[("token", "a=b&c")], id, client);
        let basic = request(ClientAuthentication::Basic(secret));
        assert_eq!(basic.form, "token=a%3Db%26c");
        let pair = BASE64.encode(b"we%3Air:s%26t+%2B");
        assert_eq!(basic.authorization, Some(format!("Basic {pair}")));
        let post = request(ClientAuthentication::Post(secret));
        assert_eq!(
            post.form,
            "token=a%3Db%26c&client_id=we%3Air&client_secret=s%26t+%2B"
        );
        assert_eq!(post.authorization, None);
        let public = request(ClientAuthentication::Public);
        assert_eq!(public.form, "token=a%3Db%26c&client_id=we%3Air");
        assert_eq!(public.authorization, None);
    }

    #[test]
    fn requests_are_not_printed() {
        let client = ClientAuthentication::Basic("CANARY-secret");
        let request = FormRequest::new(&[("token", "CANARY-token")], "weir", client);
        assert!(!format!("{client:?} {request:?}").contains("CANARY"));
    }
}
