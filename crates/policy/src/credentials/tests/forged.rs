//! Forged tokens by the thousand: valid ones, changed in one part or several, by an attacker that
//! knows how tokens are made and has no key. Each must be refused, for any reason.

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value, json};
use weir_core::port::Random as _;
use weir_testkit::{FakeRandom, TokenSigner};

use super::verifier_fixture::{VerifierFixture, settings};

/// A random number generator.
struct ForgeryRandom(FakeRandom);

impl ForgeryRandom {
    fn number(&mut self, below: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        usize::try_from(u64::from_ne_bytes(bytes) % below as u64).unwrap()
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.number(list.len())]
    }
}

/// The means of an attacker: keys of its own, and the public halves of the issuer's.
struct TokenForger {
    dice: ForgeryRandom,
    own: Vec<TokenSigner>,
    public: Vec<Value>,
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL_NOPAD.encode(bytes.as_ref())
}

fn object(part: &str) -> Map<String, Value> {
    serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap()
}

impl TokenForger {
    /// A forged token, made of a good one.
    fn forge(&mut self, good: &str) -> String {
        let parts: Vec<&str> = good.split('.').collect();
        let (mut header, mut claims) = (object(parts[0]), object(parts[1]));
        match self.dice.number(6) {
            // Another text: a letter changed, left out, put in, or a part cut short.
            0 => self.scribble(good),
            // Other claims or another header over the old signature.
            1 => {
                self.change_claims(&mut claims);
                joined(&header, &claims, parts[2])
            }
            2 => {
                self.change_header(&mut header);
                let tampered = joined(&header, &claims, parts[2]);
                // A header that comes out the same is the good token.
                if tampered == good {
                    format!("{tampered}A")
                } else {
                    tampered
                }
            }
            // All right, but signed by another key; some bring that key along.
            3 => {
                if self.dice.number(2) == 0 {
                    self.change_header(&mut header);
                }
                let signer = self.dice.number(self.own.len());
                let signer = &self.own[signer];
                if self.dice.number(2) == 0 {
                    header.insert("jwk".to_owned(), signer.jwk());
                }
                signer.token_with(&Value::from(header), &Value::from(claims))
            }
            // A signature made with the public key.
            4 => {
                header.insert(
                    "alg".to_owned(),
                    json!(self.dice.of(&["HS256", "HS384", "HS512", "RS256", "none"])),
                );
                let secret = self.dice.of(&self.public).to_string();
                let signed = format!(
                    "{}.{}",
                    text(Value::from(header).to_string()),
                    text(Value::from(claims).to_string())
                );
                let key =
                    aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
                format!(
                    "{signed}.{}",
                    text(aws_lc_rs::hmac::sign(&key, signed.as_bytes()))
                )
            }
            // An invalid signature: empty, zero, or noise of the right length.
            _ => {
                let length = *self.dice.of(&[0, 1, 32, 64, 256]);
                let fill = *self.dice.of(&[0, 1, 0xff]);
                self.change_claims(&mut claims);
                joined(&header, &claims, &text(vec![fill; length]))
            }
        }
    }

    fn scribble(&mut self, good: &str) -> String {
        let letters = b"ABCxyz019-_.=+/ \n";
        let mut bytes = good.as_bytes().to_vec();
        loop {
            let place = self.dice.number(bytes.len());
            match self.dice.number(4) {
                0 => bytes[place] = *self.dice.of(letters),
                1 => {
                    bytes.remove(place);
                }
                2 => bytes.insert(place, *self.dice.of(letters)),
                _ => bytes.truncate(place),
            }
            let scribbled = String::from_utf8(bytes.clone()).unwrap();
            if scribbled != good {
                return scribbled;
            }
        }
    }

    fn change_claims(&mut self, claims: &mut Map<String, Value>) {
        let name = *self.dice.of(&[
            "sub", "aud", "iss", "exp", "nbf", "iat", "scope", "groups", "act",
        ]);
        let value = match self.dice.number(6) {
            0 => json!("eve"),
            1 => json!(["admin"]),
            2 => json!(9_999_999_999u64),
            3 => json!({ "sub": "eve" }),
            4 => json!(null),
            _ => json!(-1.5),
        };
        claims.insert(name.to_owned(), value);
    }

    fn change_header(&mut self, header: &mut Map<String, Value>) {
        let names = [
            "alg", "kid", "typ", "crit", "b64", "jku", "x5u", "zip", "cty",
        ];
        let values = [
            json!("none"),
            json!("HS256"),
            json!("ES256"),
            json!("EdDSA"),
            json!("PS256"),
            json!("key-1"),
            json!("key-2"),
            json!("../../dev/null"),
            json!("http://127.0.0.1:9/"),
            json!(["b64"]),
            json!(false),
            json!(null),
            json!("JWT"),
        ];
        let (name, value) = (*self.dice.of(&names), self.dice.of(&values).clone());
        header.insert(name.to_owned(), value);
    }
}

fn joined(header: &Map<String, Value>, claims: &Map<String, Value>, signature: &str) -> String {
    let part = |map: &Map<String, Value>| text(Value::from(map.clone()).to_string());
    format!("{}.{}.{signature}", part(header), part(claims))
}

/// Forges this number of tokens for each kind of key, with this seed.
async fn forge(count: usize, seed: u64) {
    for signer in [
        TokenSigner::es256("key-1"),
        TokenSigner::eddsa("key-1"),
        TokenSigner::rsa("RS256", "key-1"),
    ] {
        let stand = VerifierFixture::with(settings(), signer);
        let second = TokenSigner::es256("key-2");
        stand.publish(&[stand.signer.jwk(), second.jwk()]);
        stand.settle().await;
        let good = stand.good();
        assert!(stand.subject(&good).await.is_ok());
        let mut forger = TokenForger {
            dice: ForgeryRandom(FakeRandom::new(seed)),
            own: vec![
                TokenSigner::es256("key-1"),
                TokenSigner::eddsa("key-1"),
                TokenSigner::es256("key-2"),
            ],
            public: vec![
                stand.signer.jwk(),
                second.jwk(),
                json!(text(stand.signer.public_der())),
            ],
        };
        let mut signed_as_before = 0;
        for _ in 0..count / 3 {
            let forged = forger.forge(&good);
            signed_as_before += usize::from(forged.rsplit('.').next() == good.rsplit('.').next());
            assert!(
                stand.subject(&forged).await.is_err(),
                "seed {seed}: {forged}"
            );
        }
        // The forger does not only make noise.
        assert!(signed_as_before > count / 30);
        assert!(stand.subject(&good).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn t12_two_thousand_forged_tokens_and_none_is_taken() {
    forge(2_000, 1).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes long"]
async fn t12_a_hundred_thousand_forged_tokens_and_none_is_taken() {
    for seed in 2..12 {
        forge(10_000, seed).await;
    }
}
