//! The files of `tls`: the check reads what the listener will read.

use super::*;

/// Loads a config with these files.
fn loaded(folder: &TestFolder, more: &str) -> LoadOutcome {
    let text = format!(
        "listen: 127.0.0.1:0\ntls: {{ cert: cert.pem, key: key.pem{more} }}\nupstreams: {{ a: {{ url: \"http://127.0.0.1:1/mcp\" }} }}\n"
    );
    let main = folder.write("weir.yaml", &text);
    ConfigLoader::new(ConfigSource::File(main), &environment).load()
}

#[test]
fn tls_files_that_cannot_serve_are_errors() {
    let (own, other) = (TestCertificate::new(), TestCertificate::new());
    let cases = [
        (
            "not a certificate",
            &*own.key,
            "",
            "tls.cert: cannot be used: it holds no certificate",
        ),
        (
            &*own.cert,
            "not a key",
            "",
            "tls.key: cannot be used: it holds no unencrypted private key",
        ),
        (
            &*own.cert,
            &*other.key,
            "",
            "tls.key: does not belong to the certificate in `cert` (name two files that belong together)",
        ),
        (
            &*own.cert,
            &*own.key,
            ", client_ca: weir.yaml",
            "tls.client_ca: cannot be used: it holds no certificate",
        ),
        (
            &*own.cert,
            &*own.key,
            ", client_ca: folder",
            "tls.client_ca: cannot read ",
        ),
    ];
    let folder = TestFolder::new("tls");
    folder.write("folder/file", "");
    for (cert, key, more, wanted) in cases {
        folder.write("cert.pem", cert);
        folder.write("key.pem", key);
        let outcome = loaded(&folder, more);
        let report = outcome.report.to_string();
        let wanted = format!("weir.yaml:2: error: {wanted}");
        assert!(report.contains(&wanted), "{wanted}\n{report}");
        assert!(outcome.config.is_none());
    }
    let text = "tls: { cert: cert.pem, key: cert.pem }\nupstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }\n";
    folder.write("cert.pem", &own.cert);
    let main = folder.write("weir.yaml", text);
    let report = ConfigLoader::new(ConfigSource::File(main), &environment)
        .load()
        .report
        .to_string();
    assert!(report.contains("tls.key: cannot be used"), "{report}");
    folder.write("key.pem", &own.key);
    let outcome = loaded(&folder, ", client_ca: cert.pem");
    assert!(outcome.config.is_some(), "{}", outcome.report);
}
