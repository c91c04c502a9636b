//! The commands of `weir` that need no gateway in their process: clients of MCP servers, tools for
//! config files, and queries to a running weir. The table of commands is the binary's.

pub mod add_command;
mod admin_address;
mod admin_client;
pub mod admin_command;
pub mod apikey_command;
pub mod audit_command;
mod call_arguments;
pub mod call_command;
pub mod check_command;
pub mod config_file;
pub mod connect_command;
mod content;
pub mod describe_command;
pub mod docs;
mod doctor;
pub mod doctor_command;
pub mod exit_code;
pub mod explain_command;
pub mod health_command;
pub mod import_command;
pub mod init_command;
pub mod input_prompt;
pub mod keygen_command;
mod list_options;
pub mod login_command;
mod operators_options;
pub mod prompts_command;
pub mod resources_command;
mod server_target;
mod table;
mod terminal_respondent;
pub mod tools_command;
mod unknown_name;
mod variable_stand_ins;
