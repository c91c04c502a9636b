//! The files and outlets of a plan, opened before the audit uses them.

use std::io;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_upstream::UpstreamFactory;

use crate::audit_plan::{AuditFilePlan, AuditPlan};
use crate::audit_service::audit_file::AuditFile;
use crate::audit_service::audit_thread::AuditThread;
use crate::audit_service::file_tail::AuditFileTail;
use crate::audit_service::otlp_export::AuditExporter;
use crate::audit_service::outlets::{self, AuditOutlets};
use crate::audit_service::writer::OpenedAuditFile;

/// The suffix of the file of refusals, after the path of the file of calls.
const REFUSALS: &str = ".refusals";
/// The maximum size of a file of refusals is this part of that of a file of calls.
const REFUSALS_PART: u64 = 4;
/// The smallest size of a file.
const MIN_FILE_BYTES: u64 = 64 << 10;
/// The capacity of the queue of refusals, in events.
pub(super) const REFUSALS_QUEUE: usize = 4096;

/// The reason why the audit cannot keep records as configured.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be used.
    #[error("audit records cannot be kept in {path}: {why}")]
    File {
        /// The file's path.
        path: PathBuf,
        /// The reason.
        #[source]
        why: io::Error,
    },
    /// Standard output or a resource of the system failed.
    #[error("audit records cannot be written: {0}")]
    System(#[from] io::Error),
    /// The collector's TLS settings are invalid.
    #[error("audit records cannot be sent: {0}")]
    Collector(#[from] weir_upstream::TlsError),
}

/// The opened files and outlets of a plan.
pub(super) struct AuditTargets {
    pub(super) plan: AuditPlan,
    /// `None` if the files stay.
    pub(super) places: Option<AuditFiles>,
    /// `None` if the copies stay.
    pub(super) copies: Option<(AuditCopies, AuditOutlets)>,
}

/// The files of calls and of refusals.
pub(super) struct AuditFiles {
    pub(super) calls: OpenedAuditFile,
    pub(super) refusals: OpenedAuditFile,
}

/// The threads and tasks that write copies of records beside the file.
pub(super) struct AuditCopies {
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) stdout: Option<AuditThread>,
}

impl AuditTargets {
    /// Opens the files and outlets of `plan` that differ from those of `running`.
    ///
    /// # Errors
    ///
    /// A file or outlet cannot be opened.
    pub(super) fn open(
        running: Option<&AuditPlan>,
        plan: &AuditPlan,
        factory: &UpstreamFactory,
    ) -> Result<Self, AuditError> {
        let places = match running {
            Some(running) if is_same_place(running, plan) => None,
            _ => Some(AuditFiles::open(plan)?),
        };
        let copies = match running {
            Some(running) if has_same_copies(running, plan) => None,
            _ => Some(AuditCopies::start(plan, factory)?),
        };
        Ok(Self {
            plan: plan.clone(),
            places,
            copies,
        })
    }
}

impl AuditFiles {
    fn open(plan: &AuditPlan) -> Result<Self, AuditError> {
        let calls = open(plan)?;
        let refusals = match &calls {
            // A pipe or a device takes both chains.
            Some((journal, _)) if !journal.is_regular() => {
                Some((journal.try_clone()?, AuditFileTail::empty()))
            }
            _ => open(&refusals_plan(plan))?,
        };
        Ok(Self { calls, refusals })
    }
}

fn open(plan: &AuditPlan) -> Result<OpenedAuditFile, AuditError> {
    let keys: Vec<_> = plan.key.iter().cloned().collect();
    match &plan.file {
        Some(file) => match AuditFile::open(&file.path, &keys) {
            Ok(place) => Ok(Some(place)),
            Err(why) => Err(AuditError::File {
                path: file.path.clone(),
                why,
            }),
        },
        None if plan.stdout => Ok(Some((AuditFile::stdout()?, AuditFileTail::empty()))),
        None => Ok(None),
    }
}

/// Checks the present files of a plan as a start does, without a change of them.
///
/// # Errors
///
/// A start would not continue the records of a file.
pub fn check_files(plan: &AuditPlan) -> Result<(), AuditError> {
    let keys: Vec<_> = plan.key.iter().cloned().collect();
    let refusals = refusals_plan(plan);
    for file in plan.file.iter().chain(&refusals.file) {
        AuditFile::check(&file.path, &keys).map_err(|why| AuditError::File {
            path: file.path.clone(),
            why,
        })?;
    }
    Ok(())
}

impl AuditCopies {
    pub(super) fn none() -> (Self, AuditOutlets) {
        let tasks = TaskTracker::new();
        tasks.close();
        (
            Self {
                stop: CancellationToken::new(),
                tasks,
                stdout: None,
            },
            AuditOutlets::default(),
        )
    }

    fn start(
        plan: &AuditPlan,
        factory: &UpstreamFactory,
    ) -> Result<(Self, AuditOutlets), AuditError> {
        let mut copies = AuditCopies {
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            stdout: None,
        };
        let mut outlets = AuditOutlets::default();
        if plan.stdout && plan.file.is_some() {
            let (sender, worker) = outlets::stdout()?;
            (outlets.stdout, copies.stdout) = (Some(sender), Some(worker));
        }
        if let Some(settings) = &plan.otlp {
            let (exporter, work) =
                AuditExporter::new(factory.document_poster(settings)?, copies.stop.clone());
            copies.tasks.spawn(work);
            outlets.otlp = Some(exporter);
        }
        copies.tasks.close();
        Ok((copies, outlets))
    }
}

/// Reports if records continue in the same file.
fn is_same_place(old: &AuditPlan, new: &AuditPlan) -> bool {
    let path = |plan: &AuditPlan| plan.file.as_ref().map(|file| file.path.clone());
    path(old) == path(new) && (new.file.is_some() || old.stdout == new.stdout)
}

/// Reports if the copies stay as they are.
fn has_same_copies(old: &AuditPlan, new: &AuditPlan) -> bool {
    let beside = |plan: &AuditPlan| plan.stdout && plan.file.is_some();
    beside(old) == beside(new) && old.otlp == new.otlp
}

/// Returns the settings for refusals: a file beside that of the calls, rotated like it at a smaller
/// size.
pub(super) fn refusals_plan(plan: &AuditPlan) -> AuditPlan {
    let file = plan.file.as_ref().map(|file| {
        let mut path = file.path.clone().into_os_string();
        path.push(REFUSALS);
        AuditFilePlan {
            path: path.into(),
            size: (file.size / REFUSALS_PART).max(MIN_FILE_BYTES),
            ..file.clone()
        }
    });
    AuditPlan {
        file,
        closed: false,
        queue: REFUSALS_QUEUE,
        ..plan.clone()
    }
}
