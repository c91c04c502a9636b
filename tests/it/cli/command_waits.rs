//! Waits that name their reason, and config files that every command takes in the same ways.

use std::net::TcpListener;

use weir_testkit::TestFolder;

use super::{command, weir};

#[test]
fn silent_port_is_reported_before_the_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let said = weir(&["tools", &url]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let (waiting, given_up) = said
        .err
        .trim()
        .split_once('\n')
        .unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(
        waiting,
        format!("weir: {url} has not answered yet: waiting for up to 15 s")
    );
    assert!(
        given_up.contains("no answer within 15 s: check that this is the port of an MCP server"),
        "{said:?}"
    );
}

#[test]
fn every_command_that_reads_or_writes_a_config_takes_its_name_in_the_same_ways() {
    let folder = TestFolder::new("named");
    let file = folder.file("weir.yaml");
    let name = file.to_str().unwrap();
    for (arguments, variable) in [
        (&["init", "--force", name][..], None),
        (&["init", "--force", "--config", name], None),
        (&["init", "--force", "-c", name], None),
        (&["init", "--force"], Some(name)),
        (&["add", "first", "http://127.0.0.1:1/mcp"], Some(name)),
        (&["check", name], None),
        (&["check", "--config", name], None),
        (&["check"], Some(name)),
    ] {
        let mut command = command(arguments);
        command.envs(variable.map(|name| ("WEIR_CONFIG", name)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(out.contains(name), "{arguments:?}: {out}");
        if arguments[0] == "check" {
            assert!(out.ends_with("good, 1 upstream and 2 endpoints\n"), "{out}");
        }
    }
}
