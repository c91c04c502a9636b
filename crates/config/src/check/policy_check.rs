//! `policy:`, common and of endpoints. Rules are read and checked with the rest of the config, each
//! file once.

use std::collections::BTreeSet;
use std::path::Path as FilePath;
use std::sync::Arc;

use weir_config_file::config_files::{ReadFiles, read_once, unreadable};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport, Severity};
use weir_config_file::raw::{OrOff, RawEndpoint, RawPolicy};
use weir_core::Endpoint;
use weir_core::endpoint::EndpointMode;
use weir_policy::rules::{EndpointPolicies, EndpointRules, PolicyDiagnostic, PolicyFile};

use crate::check::toolsets_check;
use crate::checked_config::Config;

/// Reads the policy files, even if their rules end up unused, so that a repaired file is noticed.
pub(super) fn read<'a>(
    all: impl Iterator<Item = &'a RawPolicy>,
    folder: &FilePath,
    texts: &mut ReadFiles,
) {
    for name in all.flat_map(|policy| policy.files.iter().flatten()) {
        read_once(&folder.join(name), texts);
    }
}

/// Returns the rules of one `policy:`. Its files start at the folder and are read into the texts.
pub(super) fn read_policy_files(
    raw: Option<&OrOff<RawPolicy>>,
    folder: &FilePath,
    texts: &mut ReadFiles,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<PolicyFile> {
    let Some(raw) = OrOff::section(raw) else {
        return Vec::new();
    };
    let files = raw.files.as_deref().unwrap_or_default();
    if raw.inline.is_none() && files.is_empty() && !report.has_error_under(path) {
        let problem = ConfigProblem::error(
            path.clone(),
            "has no rules, and without a rule nothing is allowed",
        );
        report.add(problem.hint(
            "name `files`, write `inline` rules, or write `policy: off` to allow everything",
        ));
    }
    let mut policies = Vec::new();
    for (n, name) in files.iter().enumerate() {
        let path = path.key("files").key(n);
        let file = folder.join(name);
        match read_once(&file, texts) {
            Err(problem) => report.add(unreadable(path, &file, problem)),
            Ok(text) => {
                let found = PolicyFile::read(name, text, 1);
                policies.extend(take(found, &path, Some(&file), report));
            }
        }
    }
    if let Some(text) = &raw.inline {
        let path = path.key("inline");
        // The position of the text in the file is unknown here, so its rules are named by their
        // line within it.
        policies.extend(take(
            PolicyFile::read(&path.to_string(), text, 1),
            &path,
            None,
            report,
        ));
    }
    policies
}

/// Returns the policy of one endpoint. Its `tool_scopes` are set later, when all
/// upstreams are known.
pub(super) fn endpoint_policy(
    raw: &RawEndpoint,
    endpoint: &Endpoint,
    folder: &FilePath,
    texts: &mut ReadFiles,
    report: &mut ConfigReport,
) -> EndpointRules {
    let path = ConfigPath::at("endpoints").key(&endpoint.id);
    let scopes = toolsets_check::scopes(
        raw.scopes.as_deref().unwrap_or_default(),
        &path.key("scopes"),
        report,
    );
    let policy = raw.policy.as_ref();
    let files = read_policy_files(policy, folder, texts, &path.key("policy"), report);
    EndpointRules {
        endpoint: endpoint.id.clone(),
        scopes,
        tool_scopes: Vec::new(),
        files,
    }
}

/// Returns the policies of the whole config: those of all files, and one for every endpoint with
/// tools that need scopes.
pub(super) fn policy_set(
    config: &Config,
    common: Vec<PolicyFile>,
    endpoint_rules: &[EndpointRules],
) -> Arc<EndpointPolicies> {
    let all = config.endpoints.iter().filter_map(|endpoint| {
        let given = endpoint_rules
            .iter()
            .find(|rules| rules.endpoint == endpoint.id)
            .cloned();
        let rules = given.unwrap_or_else(|| EndpointRules {
            endpoint: endpoint.id.clone(),
            scopes: Vec::new(),
            tool_scopes: Vec::new(),
            files: Vec::new(),
        });
        let rules = EndpointRules {
            tool_scopes: tool_scopes(config, endpoint),
            ..rules
        };
        let is_empty =
            rules.tool_scopes.is_empty() && rules.scopes.is_empty() && rules.files.is_empty();
        (!is_empty).then_some(rules)
    });
    Arc::new(EndpointPolicies::new(common, all.collect()))
}

/// Returns the scopes of all tools that the endpoint may show, in order.
fn tool_scopes(config: &Config, endpoint: &Endpoint) -> Vec<Arc<str>> {
    let shows = |id| match &endpoint.mode {
        EndpointMode::Aggregate { upstreams, .. } => upstreams.contains(id),
        EndpointMode::Transparent(one) => one == id,
    };
    let upstreams = config
        .upstreams
        .iter()
        .filter(|plan| shows(&plan.settings.id));
    let of_upstreams = upstreams.flat_map(|plan| plan.rules.tools.iter());
    let of_upstreams = of_upstreams.flat_map(|(_, tool)| tool.scopes.iter());
    let of_endpoint = endpoint.tools.iter().flat_map(|set| set.scopes.iter());
    let of_endpoint = of_endpoint.flat_map(|(_, scopes)| scopes.iter());
    let all: BTreeSet<Arc<str>> = of_upstreams.chain(of_endpoint).cloned().collect();
    all.into_iter().collect()
}

fn take(
    found: Result<(PolicyFile, Vec<PolicyDiagnostic>), Vec<PolicyDiagnostic>>,
    path: &ConfigPath,
    file: Option<&FilePath>,
    report: &mut ConfigReport,
) -> Option<PolicyFile> {
    let (policy, complaints) = match found {
        Ok((policy, doubts)) => (Some(policy), doubts),
        Err(wrong) => (None, wrong),
    };
    for complaint in complaints {
        report.add(problem(complaint, path, file));
    }
    policy
}

fn problem(
    complaint: PolicyDiagnostic,
    path: &ConfigPath,
    file: Option<&FilePath>,
) -> ConfigProblem {
    let PolicyDiagnostic {
        line,
        message,
        hint,
        is_warning: harmless,
    } = complaint;
    let severity = if harmless {
        Severity::Warning
    } else {
        Severity::Error
    };
    let problem = ConfigProblem {
        severity,
        hint,
        ..ConfigProblem::error(path.clone(), "")
    };
    match (file, line) {
        // A problem in a file of its own has its own line.
        (Some(file), line) => ConfigProblem {
            file: file.display().to_string(),
            line,
            message,
            ..problem
        },
        (None, Some(line)) => ConfigProblem {
            message: format!("line {line} of it: {message}"),
            ..problem
        },
        (None, None) => ConfigProblem { message, ..problem },
    }
}
