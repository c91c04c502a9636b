//! A signer of tokens, valid or not: a test sets the header and the payload.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256,
};
use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};

/// A key pair of an issuer.
#[derive(Debug)]
pub struct TokenSigner {
    algorithm: &'static str,
    kid: String,
    key: SignerKey,
}

#[derive(Debug)]
enum SignerKey {
    Rsa(Box<RsaKeyPair>),
    Ec(Box<EcdsaKeyPair>),
    Ed(Box<Ed25519KeyPair>),
}

impl TokenSigner {
    /// A fresh key for ES256.
    pub fn es256(kid: &str) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key is made");
        Self {
            algorithm: "ES256",
            kid: kid.to_owned(),
            key: SignerKey::Ec(Box::new(key)),
        }
    }

    /// A fresh key for EdDSA.
    pub fn eddsa(kid: &str) -> Self {
        let key = Ed25519KeyPair::generate().expect("a key is made");
        Self {
            algorithm: "EdDSA",
            kid: kid.to_owned(),
            key: SignerKey::Ed(Box::new(key)),
        }
    }

    /// A fresh RSA key of 2048 bits for `algorithm`, RS256 or PS256. Takes a while to make.
    pub fn rsa(algorithm: &'static str, kid: &str) -> Self {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key is made");
        Self {
            algorithm,
            kid: kid.to_owned(),
            key: SignerKey::Rsa(Box::new(key)),
        }
    }

    /// Its algorithm's name.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// The public half, as a key set lists it.
    pub fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
        let mut key = match &self.key {
            SignerKey::Rsa(key) => {
                let (modulus, exponent) = modulus_and_exponent(key);
                json!({ "kty": "RSA", "n": text(&modulus), "e": text(&exponent) })
            }
            SignerKey::Ec(key) => {
                let point = key.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..]) })
            }
            SignerKey::Ed(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": text(key.public_key().as_ref()) })
            }
        };
        key["kid"] = json!(self.kid);
        key["use"] = json!("sig");
        key["alg"] = json!(self.algorithm);
        key
    }

    /// The public half as DER, for verifiers that take it for a secret.
    pub fn public_der(&self) -> Vec<u8> {
        match &self.key {
            SignerKey::Rsa(key) => {
                let der: PublicKeyX509Der<'_> =
                    key.public_key().as_der().expect("a public key has a form");
                der.as_ref().to_vec()
            }
            SignerKey::Ec(key) => key.public_key().as_ref().to_vec(),
            SignerKey::Ed(key) => key.public_key().as_ref().to_vec(),
        }
    }

    /// A token with the usual header and these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(
            &json!({ "alg": self.algorithm, "typ": "at+jwt", "kid": self.kid }),
            claims,
        )
    }

    /// A token with this header and these claims.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.sign(header.to_string().as_bytes(), claims.to_string().as_bytes())
    }

    /// A token of these very bytes.
    pub fn sign(&self, header: &[u8], payload: &[u8]) -> String {
        let signed = format!(
            "{}.{}",
            BASE64URL_NOPAD.encode(header),
            BASE64URL_NOPAD.encode(payload)
        );
        let signature = BASE64URL_NOPAD.encode(&self.signature(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            SignerKey::Rsa(key) => {
                let padding: &dyn aws_lc_rs::signature::RsaEncoding = if self.algorithm == "PS256" {
                    &RSA_PSS_SHA256
                } else {
                    &RSA_PKCS1_SHA256
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(padding, &random, message, &mut signature)
                    .expect("it signs");
                signature
            }
            SignerKey::Ec(key) => key
                .sign(&random, message)
                .expect("it signs")
                .as_ref()
                .to_vec(),
            SignerKey::Ed(key) => key.sign(message).as_ref().to_vec(),
        }
    }
}

/// Modulus and exponent, out of `RSAPublicKey` (RFC 8017, A.1.1): a sequence of two integers.
fn modulus_and_exponent(key: &RsaKeyPair) -> (Vec<u8>, Vec<u8>) {
    let der = key.public_key().as_ref().to_vec();
    let mut rest = split_der_element(&der, 0x30).0;
    let mut integers = [(); 2].map(|()| {
        let (integer, behind) = split_der_element(rest, 0x02);
        rest = behind;
        integer
            .iter()
            .copied()
            .skip_while(|byte| *byte == 0)
            .collect()
    });
    (
        std::mem::take(&mut integers[0]),
        std::mem::take(&mut integers[1]),
    )
}

/// Returns the content of a DER element, and the bytes behind it.
fn split_der_element(der: &[u8], tag: u8) -> (&[u8], &[u8]) {
    assert_eq!(der[0], tag);
    let (length, begin) = match der[1] {
        short @ 0..0x80 => (usize::from(short), 2),
        long => {
            let digits = usize::from(long & 0x7f);
            (
                der[2..2 + digits]
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
                2 + digits,
            )
        }
    };
    (&der[begin..begin + length], &der[begin + length..])
}
