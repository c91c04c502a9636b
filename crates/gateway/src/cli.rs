//! The commands of `weir`, as a person types them.

mod add;
mod admin;
mod apikey;
mod audit;
mod call;
mod check;
mod doctor;
mod explain;
mod health;
mod import;
mod init;
mod login;
mod tools;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use data_encoding::BASE64URL_NOPAD;
use weir_core::port::Random;

use crate::client::Token;
use crate::config::{Source, schema};
use crate::handover::Inherited;
use crate::system::SystemRandom;
use crate::{quickstart, serve, terminal};

/// One endpoint in front of many MCP servers, old and new, for clients old and new.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    max_term_width = 100,
    after_help = "Try it: weir quickstart\nWith a config of your own: weir serve --config weir.yaml"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What to log: a level, or a filter such as info,weir_upstream=debug
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    Serve {
        /// The config file, YAML or JSON
        #[arg(long, short, env = "WEIR_CONFIG", value_name = "FILE")]
        config: PathBuf,
        /// Write the addresses weir listens at to this file, as JSON, once it serves; for port 0, which the system chooses
        #[arg(long, value_name = "FILE")]
        address_file: Option<PathBuf>,
    },
    /// Read a config and say everything that is wrong with it; exits with 2 if there are errors
    Check {
        /// The config file
        #[arg(value_name = "FILE", env = "WEIR_CONFIG")]
        file: PathBuf,
        /// Exit with 1 if a weir that runs with this config would refuse FILE as weaker
        #[arg(long, value_name = "OLD")]
        against: Option<PathBuf>,
        /// Start or dial each upstream, too; exits with 1 if one does not work
        #[arg(long)]
        connect: bool,
    },
    /// Try a config out: start or dial each upstream, and look at the machine; exits with 1 if something does not work
    Doctor(doctor::Options),
    /// Write a first config, with comments
    Init(init::InitOptions),
    /// Add a server to a config: weir add NAME URL, or weir add NAME -- COMMAND ARGUMENT...
    Add(add::AddOptions),
    /// Find the servers in the files of MCP clients and convert them to a config; starts none; exits with 1 if there are none
    Import(import::ImportOptions),
    /// Run weir in front of two small example servers, with nothing to configure
    Quickstart {
        /// Where to listen instead of the first free port from 8080
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
    },
    /// List the tools of an MCP server, weir or any other
    Tools {
        #[command(flatten)]
        target: Target,
        /// Stay, and show what is added, changed and removed as it happens
        #[arg(long)]
        watch: bool,
        /// Print the tools as a JSON array; with --watch, then one JSON object for each change
        #[arg(long)]
        json: bool,
    },
    /// Call a tool; exits with 1 if the tool reports an error, 3 if it could not be called
    Call {
        #[command(flatten)]
        target: Target,
        /// The tool's name, as `weir tools` shows it
        tool: String,
        /// Its arguments, a JSON object
        #[arg(default_value = "{}", value_name = "JSON")]
        arguments: String,
        /// Print the whole result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Log in at an MCP server that wants OAuth tokens; `tools` and `call` then use the login
    Login(login::Options),
    /// Forget a login, here and at its authorization server
    Logout {
        /// The server's URL
        url: String,
    },
    /// Say why somebody can use a tool or not; exits with 1 if a call would be refused
    Explain(explain::Options),
    /// Ask a running weir whether it wants traffic; exits with 1 if not, 3 if nobody answers
    Health(health::Options),
    /// Look at a running weir and change it: upstreams, clients, calls, limits, log, config
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
        /// Whom the key stands for
        subject: String,
    },
    /// Print what makes a shell complete weir's command line, such as: weir completions bash
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Be the parent of child processes; weir starts this by itself (see `keeper::run_if_asked`)
    #[command(hide = true)]
    Keeper,
    /// Print a page of the documentation that is made from the code
    #[command(hide = true)]
    Docs {
        /// Which: errors or metrics
        page: Page,
    },
}

/// A page made from the code.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Page {
    /// Every key of the config.
    Configuration,
    /// Every failure as clients see it.
    Errors,
    /// Every instrument, by its names.
    Metrics,
}

/// The server a command talks to.
#[derive(Debug, Args)]
struct Target {
    /// The server's URL, such as http://127.0.0.1:8080/mcp
    url: String,
    /// A bearer token, instead of that of `weir login`; better in the environment, where other users do not see it
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
}

impl Target {
    fn token(&self) -> Result<Option<Token>, String> {
        match &self.token {
            None => Ok(None),
            Some(text) => {
                Token::new(text).map(Some).ok_or_else(|| "the token has characters no header can have".to_owned())
            }
        }
    }
}

/// The command could not do its work: nobody there, or no MCP.
const UNREACHABLE: u8 = 3;
/// What was typed makes no sense.
const USAGE: u8 = 2;

/// Runs the command line. `inherited` is for `serve`; the other commands have no use for it.
pub async fn run(inherited: Result<Inherited, String>) -> ExitCode {
    let Cli { command, log } = Cli::parse();
    let log = log.as_deref();
    match command {
        // Boxed: it is the largest by far, and the others must not make room for it.
        Command::Serve { config, address_file } => {
            let start = serve::Start { source: Source::File(config), log, address_file, inherited };
            Box::pin(serve::serve(start)).await
        }
        Command::Check { file, against, connect } => Box::pin(check::check(&file, against.as_deref(), connect)).await,
        Command::Doctor(options) => Box::pin(doctor::doctor(&options)).await,
        Command::Init(options) => init::init(&options),
        Command::Add(options) => add::add(options),
        Command::Import(options) => import::import(&options),
        Command::Quickstart { listen } => quickstart::quickstart(listen, log).await,
        Command::Tools { target, watch, json } => tools::tools(&target, watch, json).await,
        Command::Call { target, tool, arguments, json } => call::call(&target, &tool, &arguments, json).await,
        Command::Login(options) => login::login(options).await,
        Command::Logout { url } => login::logout(&url).await,
        Command::Schema => print(&schema()),
        Command::Explain(options) => explain::explain(&options).await,
        Command::Health(options) => health::health(&options).await,
        Command::Admin(options) => Box::pin(admin::admin(options)).await,
        Command::Audit { command } => audit::run(command),
        Command::Keygen => print(&keygen()),
        Command::Apikey { subject } => print(&apikey::apikey(&subject)),
        Command::Completions { shell } => completions(shell),
        Command::Keeper => fail(USAGE, "weir starts its keeper by itself, and it takes no options"),
        Command::Docs { page: Page::Configuration } => print(&crate::docs::configuration()),
        Command::Docs { page: Page::Errors } => print(&crate::docs::errors()),
        Command::Docs { page: Page::Metrics } => print(&crate::docs::metrics()),
    }
}

fn completions(shell: clap_complete::Shell) -> ExitCode {
    // To memory first: a reader that leaves early is no panic of ours.
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

/// Says what went wrong.
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
            let line = text.lines().find(|line| line.starts_with(start)).expect("the line is printed");
            line[start.len()..].to_owned()
        };
        let secret = value(&one, "WEIR_KEY=");
        let entry = value(&one, "# keys: ");
        let environment = move |name: &str| (name == "WEIR_KEY").then(|| secret.clone());
        let source = Source::Text { name: "keys".to_owned(), text: format!("keys: {entry}\n") };
        let outcome = crate::config::Loader::new(source, &environment).load();
        assert_eq!(outcome.config.map(|config| config.keys.len()), Some(1), "{}", outcome.report);
    }
}
