//! The command line of `weir`.

mod add;
mod admin;
mod apikey;
mod arguments;
mod audit;
mod call;
mod check;
mod connect;
mod content;
mod describe;
mod doctor;
mod explain;
mod health;
mod import;
mod init;
mod lists;
mod login;
mod operators;
mod prompts;
mod questions;
mod resources;
mod stdio;
mod table;
mod target;
mod tools;
mod unknown;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use data_encoding::BASE64URL_NOPAD;
use weir_core::port::Random;

use crate::config::{Source, schema};
use crate::handover::InheritedSockets;
use crate::system::SystemRandom;
use crate::{quickstart, serve, telemetry, terminal};

/// One endpoint in front of many MCP servers, old and new, for clients old and new.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    max_term_width = 100,
    after_help = "Try it: weir quickstart\nWith a config of your own: weir serve --config weir.yaml\n\n\
        Exit codes: 0 done; 1 the answer is no, or weir could not start; 2 a mistake on the command line or in the config; \
        3 no server, or it refused; 4 a list is not whole; 5 the output could not be written; 130 interrupted"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The log level, or a filter such as info,weir_upstream=debug
    #[arg(long, global = true, value_name = "FILTER", value_parser = log_filter)]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    Serve {
        #[command(flatten)]
        config: ConfigFile,
        /// The address to listen at for clients, instead of the config's `listen`
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
        /// Write the addresses that weir listens at to this file, as JSON, once it serves; for port
        /// 0, for which the system chooses a port
        #[arg(long, value_name = "FILE")]
        address_file: Option<PathBuf>,
    },
    /// Serve a config, or a remote MCP server, over standard input and output: for MCP clients that
    /// only start programs
    Stdio(stdio::StdioOptions),
    /// Read a config and name every error in it; exits with 2 if there are errors
    Check {
        #[command(flatten)]
        config: ConfigFile,
        /// Exit with 1 if a weir that runs with this config would refuse FILE as weaker
        #[arg(long, value_name = "OLD")]
        against: Option<PathBuf>,
        /// Also start or connect to each upstream; exits with 1 if one does not work
        #[arg(long)]
        connect: bool,
    },
    /// Try a config out: start or connect to each upstream, and inspect the machine; exits with 1
    /// on any failure
    Doctor(doctor::Options),
    /// Write a first config, with comments
    Init(init::InitOptions),
    /// Add a server to a config: weir add NAME URL, or weir add NAME -- COMMAND ARGUMENT...
    Add(add::AddOptions),
    /// Find the servers in the files of MCP clients and convert them to a config; starts no server;
    /// exits with 1 if it finds none
    Import(import::ImportOptions),
    /// Connect an MCP client to weir: print the entry for the client's file, or write it there;
    /// without a client, list the known ones
    Connect(connect::ConnectOptions),
    /// Run weir in front of two small example servers, without a config
    Quickstart {
        /// The address to listen at, instead of the first free port from 8080
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
    },
    /// List the tools of an MCP server, weir or any other; exits with 4 if some cannot be listed
    /// now
    Tools(tools::ToolsOptions),
    /// Show the description and the arguments of a tool, and an example
    Describe(describe::DescribeOptions),
    /// Call a tool; exits with 1 if the tool reports an error, 3 if it could not be called
    Call(call::CallOptions),
    /// List the prompts of an MCP server
    Prompts(prompts::PromptsOptions),
    /// Print a prompt, filled in
    Prompt(prompts::PromptOptions),
    /// List the resources of an MCP server, and the templates of resource URIs
    Resources(resources::ResourcesOptions),
    /// Print or save a resource
    Read(resources::ReadOptions),
    /// Log in at an MCP server that requires OAuth tokens; `tools` and `call` then use the login
    Login(login::Options),
    /// Forget a login, here and at its authorization server
    Logout {
        /// The server's URL
        url: String,
    },
    /// Explain why a caller can use a tool or not; exits with 1 if a call would be refused
    Explain(explain::Options),
    /// Ask a running weir if it is ready for traffic; exits with 1 if not, 3 without an answer
    Health(health::Options),
    /// Inspect a running weir and change it: upstreams, clients, calls, limits, log, config
    Admin(admin::Options),
    /// Audit records
    Audit {
        #[command(subcommand)]
        command: audit::Command,
    },
    /// Print the JSON Schema of the config, for editors
    Schema,
    /// Print a fresh sealing key for the config's `keys`
    Keygen,
    /// Print a fresh API key for a machine, and its entry for the config's `auth.api_keys`
    Apikey {
        /// The principal that the key stands for
        subject: String,
        /// Make a token for an operator instead, with its entry for `admin.auth.tokens`
        #[arg(long)]
        operator: bool,
    },
    /// Print completions of weir's command line for a shell, such as: weir completions bash
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Run the keeper, the parent of child processes; weir starts this by itself (see
    /// `keeper::run_if_asked`)
    #[command(hide = true)]
    Keeper,
    /// Print a page of the documentation that is generated from the code
    #[command(hide = true)]
    Docs {
        /// The page: configuration, errors or metrics
        page: Page,
    },
}

/// A page generated from the code.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Page {
    /// Every key of the config.
    Configuration,
    /// Every failure as clients see it.
    Errors,
    /// Every instrument, by its names.
    Metrics,
}

/// A config file, given as an argument, by `--config` or in the environment.
#[derive(Debug, Args)]
struct ConfigFile {
    /// The config file, YAML or JSON
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The config file, as an option
    #[arg(long, short, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// Returns the path. clap requires one of the two.
    fn path(self) -> PathBuf {
        self.file
            .or(self.config)
            .unwrap_or_else(|| PathBuf::from("weir.yaml"))
    }
}

/// The exit code of a negative answer: a tool reported an error, a search had no match, a call
/// would be refused, weir is not ready.
const NO: u8 = 1;
/// The exit code of a mistake on the command line.
const USAGE: u8 = 2;
/// The exit code of a server that does not answer, answers without MCP, or refuses.
const UNREACHABLE: u8 = 3;
/// The exit code of an incomplete list: upstreams are down or still starting.
const INCOMPLETE: u8 = 4;
/// The exit code of output that cannot be written: a full disk, or a file that cannot be created.
const UNWRITTEN: u8 = 5;
/// The exit code of a command that a person interrupted.
const INTERRUPTED: u8 = 130;

/// Runs the command line. Only `serve` uses `inherited`.
pub async fn run(inherited: Result<InheritedSockets, String>) -> ExitCode {
    let Cli { command, log } = Cli::parse();
    let code = run_command(command, log.as_deref(), inherited).await;
    // A closed pipe is not an error.
    match terminal::lost_output() {
        Some(error) => fail(
            UNWRITTEN,
            format_args!("standard output cannot be written: {error}"),
        ),
        None => code,
    }
}

async fn run_command(
    command: Command,
    log: Option<&str>,
    inherited: Result<InheritedSockets, String>,
) -> ExitCode {
    match command {
        // Boxed: its future is the largest by far, and the others must not reserve its size.
        Command::Serve {
            config,
            listen,
            address_file,
        } => {
            let source = Source::File(config.path());
            let start = serve::ServeStart {
                source,
                listen,
                log,
                address_file,
                inherited,
            };
            Box::pin(serve::serve(start)).await
        }
        Command::Stdio(options) => Box::pin(stdio::stdio(options, log)).await,
        Command::Check {
            config,
            against,
            connect,
        } => Box::pin(check::check(&config.path(), against.as_deref(), connect)).await,
        Command::Doctor(options) => Box::pin(doctor::doctor(options)).await,
        Command::Init(options) => init::init(&options),
        Command::Add(options) => add::add(options),
        Command::Import(options) => import::import(&options),
        Command::Connect(options) => connect::connect(&options).await,
        Command::Quickstart { listen } => quickstart::quickstart(listen, log).await,
        Command::Tools(options) => tools::tools(&options).await,
        Command::Describe(options) => describe::describe(&options).await,
        Command::Call(options) => call::call(&options).await,
        Command::Prompts(options) => prompts::prompts(&options).await,
        Command::Prompt(options) => prompts::prompt(&options).await,
        Command::Resources(options) => resources::resources(&options).await,
        Command::Read(options) => resources::read(&options).await,
        Command::Login(options) => login::login(options).await,
        Command::Logout { url } => login::logout(&url).await,
        Command::Schema => print(&schema()),
        Command::Explain(options) => explain::explain(&options).await,
        Command::Health(options) => health::health(&options).await,
        Command::Admin(options) => Box::pin(admin::admin(options)).await,
        Command::Audit { command } => audit::run(command),
        Command::Keygen => print(&keygen()),
        Command::Apikey { subject, operator } => {
            let of = if operator {
                apikey::KeyOwner::Operator
            } else {
                apikey::KeyOwner::Machine
            };
            print(&apikey::apikey(&subject, of))
        }
        Command::Completions { shell } => completions(shell),
        Command::Keeper => fail(
            USAGE,
            "weir starts its keeper by itself, and it takes no options",
        ),
        Command::Docs {
            page: Page::Configuration,
        } => print(&crate::docs::configuration()),
        Command::Docs { page: Page::Errors } => print(&crate::docs::errors()),
        Command::Docs {
            page: Page::Metrics,
        } => print(&crate::docs::metrics()),
    }
}

/// Checks a log filter, also for commands that do not log.
fn log_filter(text: &str) -> Result<String, String> {
    telemetry::check_filter(text).map(|()| text.to_owned())
}

fn completions(shell: clap_complete::Shell) -> ExitCode {
    // Written to memory first, so that a reader that closes the pipe early causes no panic.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
    print(&String::from_utf8_lossy(&script))
}

fn print(text: &str) -> ExitCode {
    terminal::write(text);
    ExitCode::SUCCESS
}

fn keygen() -> String {
    let mut bytes = [0; 33];
    SystemRandom.fill(&mut bytes);
    let [id, secret @ ..] = bytes;
    format!(
        "# Put the secret where weir starts (WEIR_KEY), and the line into the config. A new key goes in front; keep the\n\
         # old one behind it until what it sealed has expired.\n\
         WEIR_KEY={}\n\
         # keys: [{{ id: {}, secret: \"${{WEIR_KEY}}\" }}]\n",
        BASE64URL_NOPAD.encode(&secret),
        id.max(1)
    )
}

/// Prints the error, and returns the exit code.
fn fail(code: u8, why: impl std::fmt::Display) -> ExitCode {
    terminal::note(format_args!("weir: {why}"));
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn g05_a_generated_key_is_accepted_and_no_two_are_equal() {
        let (one, two) = (keygen(), keygen());
        assert_ne!(one, two);
        let value = |text: &str, start: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(start))
                .expect("the line is printed");
            line[start.len()..].to_owned()
        };
        let secret = value(&one, "WEIR_KEY=");
        let entry = value(&one, "# keys: ");
        let environment = move |name: &str| (name == "WEIR_KEY").then(|| secret.clone());
        let source = Source::Text {
            name: "keys".to_owned(),
            text: format!("keys: {entry}\n"),
        };
        let outcome = crate::config::Loader::new(source, &environment).load();
        assert_eq!(
            outcome.config.map(|config| config.keys.len()),
            Some(1),
            "{}",
            outcome.report
        );
    }
}
