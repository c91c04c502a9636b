//! The forward proxy that the environment names, as for other programs of the command line.

use std::sync::Arc;

use weir_http_client::{ForwardProxy, ProxyUrlError};

/// Returns the forward proxy for `https` servers of `HTTPS_PROXY`, or else of `ALL_PROXY`, without
/// the servers of `NO_PROXY` and of this machine.
///
/// # Errors
/// In words: the variable's value is not the URL of a proxy.
pub fn environment_proxy() -> Result<Option<Arc<ForwardProxy>>, String> {
    read(&|name| std::env::var(name).ok())
}

fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Arc<ForwardProxy>>, String> {
    match ForwardProxy::from_environment(variable) {
        Ok(found) => Ok(found.map(|found| Arc::new(found.proxy))),
        // A proxy of another kind, such as SOCKS. Servers may be reachable without it.
        Err((_, ProxyUrlError::Scheme)) => Ok(None),
        Err((name, error)) => Err(format!("the variable {name} {error}: correct it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_of_another_kind_is_not_used_and_an_invalid_url_is_named() {
        let of = |value: &'static str| {
            let found = read(&|name| (name == "HTTPS_PROXY").then(|| value.to_owned()));
            found.map(|proxy| proxy.map(|proxy| proxy.to_string()))
        };
        assert_eq!(of(""), Ok(None));
        assert_eq!(of("socks5://proxy:1080"), Ok(None));
        assert_eq!(of("http://proxy:3128"), Ok(Some("proxy:3128".to_owned())));
        let error = of("http://me:can/ary@proxy:3128").expect_err("no URL");
        assert!(
            error.starts_with("the variable HTTPS_PROXY has a path") && !error.contains("ary"),
            "{error}"
        );
    }
}
