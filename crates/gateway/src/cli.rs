//! The command line of `weir`.

mod stdio_command;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};

use weir_commands::config_file::ConfigFileOptions;
use weir_commands::exit_code::{EXIT_UNWRITTEN, EXIT_USAGE, exit_with_error};
use weir_commands::{
    add_command, admin_command, apikey_command, audit_command, call_command, check_command,
    connect_command, describe_command, doctor_command, explain_command, health_command,
    import_command, init_command, keygen_command, login_command, prompts_command,
    resources_command, tools_command,
};
use weir_config::ConfigSource;
use weir_config_file::schema::schema;
use weir_handover::InheritedSockets;

use crate::{quickstart, serve};

/// One endpoint in front of many MCP servers, old and new, for clients old and new.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    max_term_width = 100,
    after_help = "Try it: weir quickstart\nWith a config of your own: weir serve --config weir.yaml\n\n\
        Exit codes: 0 done; 1 the answer is no, or weir could not start; 2 an error on the command line or in the config; \
        3 no server, or it refused; 4 a list is incomplete; 5 the output could not be written; 130 interrupted"
)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
    /// The log level, or a filter such as info,weir_upstream=debug
    #[arg(long, global = true, value_name = "FILTER", value_parser = log_filter)]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the gateway
    Serve {
        #[command(flatten)]
        config: ConfigFileOptions,
        /// The address to listen at for clients, instead of the config's `listen`
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
        /// Write the addresses that weir listens at to this file, as JSON, once it serves; for port
        /// 0, for which the system chooses a port
        #[arg(long, env = "WEIR_ADDRESS_FILE", value_name = "FILE")]
        address_file: Option<PathBuf>,
    },
    /// Serve a config, or a remote MCP server, over standard input and output: for MCP clients that
    /// only start programs
    Stdio(stdio_command::StdioOptions),
    /// Read a config and name every error in it; exits with 2 if there are errors
    Check(check_command::CheckOptions),
    /// Try a config out: start or connect to each upstream, and inspect the machine; exits with 1
    /// on any failure
    Doctor(doctor_command::DoctorOptions),
    /// Write a first config, with comments
    Init(init_command::InitOptions),
    /// Add a server to a config: weir add NAME URL, or weir add NAME -- COMMAND ARGUMENT...
    Add(add_command::AddOptions),
    /// Find the servers in the files of MCP clients and convert them to a config; starts no server;
    /// exits with 1 if it finds none
    Import(import_command::ImportOptions),
    /// Connect an MCP client to weir: print the entry for the client's file, or write it there;
    /// without a client, list the known ones
    Connect(connect_command::ConnectOptions),
    /// Run weir in front of two small example servers, without a config
    Quickstart {
        /// The address to listen at, instead of the first free port from 8080
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
    },
    /// List the tools of an MCP server, weir or any other; exits with 4 if some cannot be listed
    /// now
    Tools(tools_command::ToolsOptions),
    /// Show the description and the arguments of a tool, and an example
    Describe(describe_command::DescribeOptions),
    /// Call a tool; exits with 1 if the tool reports an error, 3 if it could not be called
    Call(call_command::CallOptions),
    /// List the prompts of an MCP server
    Prompts(prompts_command::PromptsOptions),
    /// Print a prompt, filled in
    Prompt(prompts_command::PromptOptions),
    /// List the resources of an MCP server, and the templates of resource URIs
    Resources(resources_command::ResourcesOptions),
    /// Print or save a resource
    Read(resources_command::ReadOptions),
    /// Log in at an MCP server that requires OAuth tokens; `tools` and `call` then use the login
    Login(login_command::LoginOptions),
    /// Forget a login, here and at its authorization server
    Logout {
        /// The server's URL
        url: String,
    },
    /// Explain why a caller can use a tool or not; exits with 1 if a call would be refused
    Explain(explain_command::ExplainOptions),
    /// Ask a running weir if it is ready for traffic; exits with 1 if not, 3 without an answer
    Health(health_command::HealthOptions),
    /// Inspect a running weir and change it: upstreams, clients, calls, limits, log, config
    Admin(admin_command::AdminOptions),
    /// Audit records
    Audit {
        #[command(subcommand)]
        command: audit_command::AuditCommand,
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
        page: DocsPage,
    },
}

/// A page generated from the code.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum DocsPage {
    /// Every key of the config.
    Configuration,
    /// Every failure as clients see it.
    Errors,
    /// Every instrument, by its names.
    Metrics,
}

/// Runs the command line. Only `serve` uses `inherited`.
pub async fn run(inherited: Result<InheritedSockets, String>) -> ExitCode {
    let mut matches = without_empty_variables(Cli::command()).get_matches();
    if has_two_configs(&matches) {
        let text = "name the config once: as an argument, or with --config";
        Cli::command()
            .error(ErrorKind::ArgumentConflict, text)
            .exit();
    }
    let parsed = Cli::from_arg_matches_mut(&mut matches);
    let Cli { command, log } =
        parsed.unwrap_or_else(|error| error.format(&mut Cli::command()).exit());
    let code = run_command(command, log.as_deref(), inherited).await;
    // A closed pipe is not an error.
    match weir_terminal::lost_output() {
        Some(error) => exit_with_error(
            EXIT_UNWRITTEN,
            format_args!("standard output cannot be written: {error}"),
        ),
        None => code,
    }
}

async fn run_command(
    command: CliCommand,
    log: Option<&str>,
    inherited: Result<InheritedSockets, String>,
) -> ExitCode {
    match command {
        // Boxed: its future is the largest by far, and the others must not reserve its size.
        CliCommand::Serve {
            config,
            listen,
            address_file,
        } => {
            let source = ConfigSource::File(config.path());
            let start = serve::ServeStart {
                source,
                listen,
                log,
                address_file,
                inherited,
            };
            Box::pin(serve::serve(start)).await
        }
        CliCommand::Stdio(options) => Box::pin(stdio_command::stdio(options, log)).await,
        CliCommand::Check(options) => Box::pin(check_command::check(options)).await,
        CliCommand::Doctor(options) => Box::pin(doctor_command::doctor(options)).await,
        CliCommand::Init(options) => init_command::init(&options),
        CliCommand::Add(options) => add_command::add(&options),
        CliCommand::Import(options) => import_command::import(&options),
        CliCommand::Connect(options) => connect_command::connect(&options).await,
        CliCommand::Quickstart { listen } => quickstart::quickstart(listen, log).await,
        CliCommand::Tools(options) => tools_command::tools(&options).await,
        CliCommand::Describe(options) => describe_command::describe(&options).await,
        CliCommand::Call(options) => call_command::call(&options).await,
        CliCommand::Prompts(options) => prompts_command::prompts(&options).await,
        CliCommand::Prompt(options) => prompts_command::prompt(&options).await,
        CliCommand::Resources(options) => resources_command::resources(&options).await,
        CliCommand::Read(options) => resources_command::read(&options).await,
        CliCommand::Login(options) => login_command::login(options).await,
        CliCommand::Logout { url } => login_command::logout(&url).await,
        CliCommand::Schema => print_text(&schema()),
        CliCommand::Explain(options) => explain_command::explain(&options).await,
        CliCommand::Health(options) => health_command::health(&options).await,
        CliCommand::Admin(options) => Box::pin(admin_command::admin(options)).await,
        CliCommand::Audit { command } => audit_command::run(command),
        CliCommand::Keygen => print_text(&keygen_command::keygen()),
        CliCommand::Apikey { subject, operator } => {
            let of = if operator {
                apikey_command::KeyOwner::Operator
            } else {
                apikey_command::KeyOwner::Machine
            };
            match apikey_command::apikey(&subject, of) {
                Ok(text) => print_text(&text),
                Err(why) => exit_with_error(EXIT_USAGE, why),
            }
        }
        CliCommand::Completions { shell } => completions(shell),
        CliCommand::Keeper => exit_with_error(
            EXIT_USAGE,
            "weir starts its keeper by itself, and it takes no options",
        ),
        CliCommand::Docs {
            page: DocsPage::Configuration,
        } => print_text(&weir_config_file::configuration_page()),
        CliCommand::Docs {
            page: DocsPage::Errors,
        } => print_text(&weir_commands::docs::errors()),
        CliCommand::Docs {
            page: DocsPage::Metrics,
        } => print_text(&weir_commands::docs::metrics()),
    }
}

/// Returns the command without the environment variables that are empty: a container cannot unset
/// a variable of its image, and makes it empty instead.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    command
        .mut_args(|argument| {
            let value = argument.get_env().and_then(std::env::var_os);
            match value.is_some_and(|value| value.is_empty()) {
                true => argument.env(None::<&'static str>),
                false => argument,
            }
        })
        .mut_subcommands(without_empty_variables)
}

/// Reports if the command line names a config as an argument and in `--config`. An argument takes
/// precedence over `WEIR_CONFIG`, so clap must not refuse the two by itself.
fn has_two_configs(matches: &clap::ArgMatches) -> bool {
    let Some((name, given)) = matches.subcommand() else {
        return false;
    };
    let all = Cli::command();
    let positionals = all.find_subcommand(name).into_iter();
    let mut positionals = positionals.flat_map(clap::Command::get_positionals);
    let is_given = |id: &str| {
        given.try_contains_id(id).unwrap_or_default()
            && given.value_source(id) == Some(ValueSource::CommandLine)
    };
    positionals.any(|argument| {
        let id = argument.get_id().as_str();
        ["file", "target"].contains(&id) && is_given(id) && is_given("config")
    })
}

/// Checks a log filter, also for commands that do not log.
fn log_filter(text: &str) -> Result<String, String> {
    weir_telemetry::check_filter(text).map(|()| text.to_owned())
}

fn completions(shell: clap_complete::Shell) -> ExitCode {
    let all = Cli::command();
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    // clap's scripts offer hidden commands too.
    let mut offered = clap::Command::new("weir")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments())
        .subcommands(shown.cloned());
    // Written to memory first, so that a reader that closes the pipe early causes no panic.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered, "weir", &mut script);
    print_text(&String::from_utf8_lossy(&script))
}

fn print_text(text: &str) -> ExitCode {
    weir_terminal::write(text);
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
