//! Numbers that count something.

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};

/// The largest count. A higher one is no limit in practice, and no semaphore can have it.
const MAX_COUNT: u64 = 1_000_000_000;

/// Checks a count that must be from `least` to [`MAX_COUNT`].
pub(super) fn check_count<N: Copy + TryInto<u64>>(
    count: Option<N>,
    least: u64,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<N> {
    let number = count?.try_into().unwrap_or(u64::MAX);
    if number < least {
        let message = format!("must be at least {least}");
        report.add(ConfigProblem::error(path.clone(), message));
    } else if number > MAX_COUNT {
        let message = format!("must be at most {MAX_COUNT}");
        report.add(ConfigProblem::error(path.clone(), message));
    }
    count
}
