#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use weir_testkit::{TestFolder, TokenServer};

use super::*;

fn account(resource: &str, token: &str) -> LoginAccount {
    LoginAccount {
        resource: resource.to_owned(),
        issuer: "https://id.example".to_owned(),
        client_id: "c".to_owned(),
        client_secret: None,
        token_endpoint: "https://id.example/token".to_owned(),
        revocation_endpoint: None,
        access_token: token.to_owned(),
        refresh_token: None,
        expires_at: None,
        scope: None,
    }
}

async fn token(accounts: &LoginAccounts, server: &str) -> Option<String> {
    let found = accounts
        .token(&server_url(server).unwrap(), None)
        .await
        .unwrap();
    found.map(|account| account.access_token)
}

// Proves R267.
#[tokio::test]
async fn logins_are_kept_for_their_owner_alone() {
    let temporary = TestFolder::new("mode");
    let folder = temporary.file("state");
    let accounts = LoginAccounts::in_folder(&folder);
    accounts
        .keep(&account("https://a.example/mcp", "canary"))
        .await
        .unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&accounts.file), 0o600);
    assert_eq!(mode(&folder), 0o700);
    accounts
        .keep(&account("https://b.example/mcp", "two"))
        .await
        .unwrap();
    assert_eq!(mode(&accounts.file), 0o600, "also when it is replaced");
    assert!(
        !format!("{accounts:?}{:?}", account("https://a.example/", "canary")).contains("canary")
    );
}

// Proves R254.
#[tokio::test]
async fn a_token_goes_to_the_resource_it_is_for_and_the_closest_one_wins() {
    let temporary = TestFolder::new("closest");
    let folder = temporary.file("state");
    let accounts = LoginAccounts::in_folder(&folder);
    assert_eq!(
        token(&accounts, "https://a.example/mcp").await,
        None,
        "no file yet"
    );
    accounts
        .keep(&account("https://a.example/", "root"))
        .await
        .unwrap();
    accounts
        .keep(&account("https://a.example/mcp/team", "team"))
        .await
        .unwrap();
    assert_eq!(
        token(&accounts, "https://a.example/mcp").await.as_deref(),
        Some("root")
    );
    assert_eq!(
        token(&accounts, "https://a.example/mcp/team/")
            .await
            .as_deref(),
        Some("team")
    );
    assert_eq!(token(&accounts, "https://b.example/mcp").await, None);
    accounts
        .keep(&account("https://a.example", "again"))
        .await
        .unwrap();
    assert_eq!(
        token(&accounts, "https://a.example/mcp").await.as_deref(),
        Some("again"),
        "one login a resource"
    );
    let forget = async |server| accounts.forget(&server_url(server).unwrap()).await.unwrap();
    let Logout::Done { account, revoked } = forget("https://a.example/mcp/team/").await else {
        panic!("it was logged in");
    };
    assert_eq!(
        (account.access_token.as_str(), revoked.is_ok()),
        ("team", true)
    );
    assert_eq!(
        token(&accounts, "https://a.example/mcp/team")
            .await
            .as_deref(),
        Some("again")
    );
}

// Proves R254.
#[tokio::test]
async fn login_of_a_resource_above_is_neither_ended_nor_extended() {
    let temporary = TestFolder::new("above");
    let accounts = LoginAccounts::in_folder(temporary.path());
    accounts
        .keep(&LoginAccount {
            scope: Some("admin".to_owned()),
            ..account("https://a.example/mcp", "above")
        })
        .await
        .unwrap();
    let below = server_url("https://a.example/mcp/team").unwrap();
    let Logout::NoLogin(Some(above)) = accounts.forget(&below).await.unwrap() else {
        panic!("the login of another resource was taken");
    };
    assert_eq!(above.resource(), "https://a.example/mcp");
    let issuer = "https://id.example";
    assert_eq!(accounts.scope(below.as_str(), issuer).unwrap(), None);
    let scope = |issuer: &str| accounts.scope("https://a.example/mcp/", issuer).unwrap();
    assert_eq!(scope(issuer).as_deref(), Some("admin"));
    assert_eq!(scope("https://other.example"), None, "another issuer");
    assert_eq!(
        token(&accounts, below.as_str()).await.as_deref(),
        Some("above")
    );
    let other = server_url("https://b.example/mcp").unwrap();
    let outcome = accounts.forget(&other).await.unwrap();
    assert!(matches!(outcome, Logout::NoLogin(None)), "{outcome:?}");
}

#[tokio::test]
async fn an_ended_token_that_cannot_be_refreshed_is_no_token() {
    let temporary = TestFolder::new("ended");
    let folder = temporary.file("state");
    let accounts = LoginAccounts::in_folder(&folder);
    accounts
        .keep(&LoginAccount {
            expires_at: Some(1),
            ..account("https://a.example/mcp", "old")
        })
        .await
        .unwrap();
    assert_eq!(token(&accounts, "https://a.example/mcp").await, None);
}

#[tokio::test]
async fn token_that_cannot_be_refreshed_serves_until_its_end() {
    let temporary = TestFolder::new("unrefreshed");
    let accounts = LoginAccounts::in_folder(temporary.path());
    let issuer = TokenServer::start().await;
    let server = server_url("https://a.example/mcp").unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let soon = now.unwrap().as_secs() + 25;
    let held = |refresh: Option<&str>, expires_at| LoginAccount {
        token_endpoint: issuer.endpoint(),
        refresh_token: refresh.map(str::to_owned),
        expires_at: Some(expires_at),
        ..account("https://a.example/mcp", "held")
    };
    let busy = |code: u16| issuer.queue_answer(code, &json!({ "error": "invalid_grant" }));

    accounts.keep(&held(None, soon)).await.unwrap();
    assert_eq!(
        token(&accounts, server.as_str()).await.as_deref(),
        Some("held"),
        "without a refresh token"
    );
    accounts.keep(&held(Some("again"), soon)).await.unwrap();
    for code in [503, 400] {
        busy(code);
        assert_eq!(
            token(&accounts, server.as_str()).await.as_deref(),
            Some("held"),
            "{code}"
        );
    }
    let refused = held(Some("again"), soon);
    busy(503);
    let error = accounts.token(&server, Some(&refused)).await.unwrap_err();
    assert!(error.to_string().contains(&issuer.endpoint()), "{error}");
    busy(400);
    let ended = accounts.token(&server, Some(&refused)).await.unwrap_err();
    assert_eq!(
        ended.to_string(),
        format!(
            "{} refused to refresh the token: invalid_grant",
            refused.issuer
        )
    );

    accounts.keep(&held(Some("again"), 1)).await.unwrap();
    busy(503);
    let error = accounts.token(&server, None).await.unwrap_err();
    assert!(error.to_string().contains("HTTP 503"), "{error}");
    assert_eq!(issuer.requests().len(), 5);
}

#[tokio::test]
async fn refresh_token_is_kept_where_its_successor_cannot_be_written() {
    let temporary = TestFolder::new("unwritable");
    let accounts = LoginAccounts::in_folder(temporary.path());
    let issuer = TokenServer::start().await;
    let server = server_url("https://a.example/mcp").unwrap();
    let stored = LoginAccount {
        token_endpoint: issuer.endpoint(),
        refresh_token: Some("again".to_owned()),
        expires_at: Some(1),
        ..account("https://a.example/mcp", "held")
    };
    accounts.keep(&stored).await.unwrap();
    // A folder in the place of the next file lets nobody write it, not even root.
    let next = accounts.file.with_extension("next");
    fs::create_dir(&next).unwrap();
    let error = accounts.token(&server, None).await.unwrap_err().to_string();
    assert!(error.contains("cannot write"), "{error}");
    assert_eq!(issuer.requests().len(), 0, "the refresh token is not used");

    fs::remove_dir(&next).unwrap();
    issuer.queue_answer(
        200,
        &json!({ "access_token": "new", "token_type": "Bearer" }),
    );
    assert_eq!(
        token(&accounts, server.as_str()).await.as_deref(),
        Some("new")
    );
}

#[tokio::test]
async fn stored_token_serves_while_another_command_holds_the_lock_or_none_can_be_made() {
    let temporary = TestFolder::new("locked");
    let accounts = LoginAccounts::in_folder(temporary.path());
    let server = "https://a.example/mcp";
    accounts.keep(&account(server, "held")).await.unwrap();
    let lock = accounts.lock().await.unwrap();
    assert_eq!(token(&accounts, server).await.as_deref(), Some("held"));
    // The wait for the lock blocks no other task of the same thread.
    let other = account("https://b.example/mcp", "other");
    let (kept, ()) = tokio::join!(accounts.keep(&other), async {
        tokio::task::yield_now().await;
        drop(lock);
    });
    kept.unwrap();

    let name = accounts.file.with_extension("lock");
    fs::remove_file(&name).unwrap();
    fs::create_dir(&name).unwrap();
    assert_eq!(token(&accounts, server).await.as_deref(), Some("held"));
}

#[tokio::test]
async fn a_broken_file_is_named_and_not_quoted() {
    let temporary = TestFolder::new("broken");
    let folder = temporary.file("state");
    let accounts = LoginAccounts::in_folder(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(&accounts.file, "{\"https://a.example\": \"canary\"}").unwrap();
    let error = accounts
        .token(&server_url("https://a.example").unwrap(), None)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tokens.json") && !error.contains("canary"),
        "{error}"
    );
}
