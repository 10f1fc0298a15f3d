//! What a driver does to the bytes: built in, declared by an annotation, or unknown (`docs/design.md` 4.2).
//!
//! **Promises.** Unknown is the careful value: nothing is released on its account. A declaration that cannot be read
//! whole changes nothing, and is refused with a sentence that names the field.
//!
//! **Assumes.** Only administrators write strategies. Each record keeps a copy of what was in force.

use super::words;
use serde_json::Value;

words! {
    /// What deleting a Backup does to the bytes.
    Deletion {
        /// Nothing.
        None => "none",
        /// The driver's own record goes, the bytes stay.
        RecordOnly => "recordOnly",
        /// Somebody is asked to delete them, who may fail.
        Requested => "requested",
        /// They are deleted, and that is read back.
        Confirmed => "confirmed",
        /// Not known: as `none`.
        Unknown => "unknown",
    }
}
words! {
    /// Whether somebody says how large an artifact is.
    SizeReport {
        /// Nobody.
        None => "none",
        /// The driver, in the Backup's status.
        Driver => "driver",
        /// A measurement.
        Measured => "measured",
        /// Not known: as `none`.
        Unknown => "unknown",
    }
}
words! {
    /// Whether the driver deletes artifacts by itself and leaves the Backup behind.
    Pruning {
        /// No.
        None => "none",
        /// Yes, at its own pace.
        Driver => "driver",
        /// The next run does.
        DriverOnNextRun => "driverOnNextRun",
        /// After a time that was set when it was made.
        Ttl => "ttl",
        /// Not known.
        Unknown => "unknown",
    }
}
words! {
    /// Whether each Backup has an artifact of its own.
    IdentityKind {
        /// Yes.
        Unique => "unique",
        /// Several may refer to one.
        Shared => "shared",
        /// Not known.
        Unknown => "unknown",
    }
}
words! {
    /// Whether artifacts can be listed.
    Enumerable {
        /// No.
        No => "no",
        /// By listing the store.
        Listing => "listing",
        /// By an object of the driver's operator.
        OperatorCr => "operatorCR",
        /// Not known: as `no`.
        Unknown => "unknown",
    }
}

/// What a driver does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// What deleting a Backup does to the bytes.
    pub deletion: Deletion,
    /// Who says how large an artifact is.
    pub size: SizeReport,
    /// Whether the driver deletes artifacts by itself.
    pub pruning: Pruning,
    /// Whether each Backup has an artifact of its own.
    pub identity: IdentityKind,
    /// Whether bytes are added after the Backup is there.
    pub grows_after_ready: bool,
    /// Whether artifacts can be listed.
    pub enumerable: Enumerable,
}

/// Of a driver that nobody described.
pub const CAREFUL: Capabilities = Capabilities {
    deletion: Deletion::Unknown,
    size: SizeReport::Unknown,
    pruning: Pruning::Unknown,
    identity: IdentityKind::Unknown,
    grows_after_ready: true,
    enumerable: Enumerable::Unknown,
};

words! {
    /// Who says what a driver does.
    DeclaredBy {
        /// [`TABLE`].
        BuiltIn => "builtIn",
        /// The annotation on the strategy.
        Annotation => "annotation",
        /// Nobody: [`CAREFUL`].
        Unknown => "unknown",
        /// It was never written down: [`CAREFUL`], until a Backup is seen again.
        Unwritten => "unwritten",
    }
}

/// What is in force for a strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    /// What the driver does.
    pub capabilities: Capabilities,
    /// Who says so.
    pub from: DeclaredBy,
}

/// One row of the built-in table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Kind of the strategy.
    pub kind: &'static str,
    /// What its driver does.
    pub capabilities: Capabilities,
    /// Seconds from its start after which the platform gives a run up; `None`: never.
    pub deadline_seconds: Option<i64>,
    /// The run is a pod that the BackupJob owns, so it ends when the job is deleted.
    pub dies_with_job: bool,
    /// What the row rests on.
    pub evidence: &'static str,
}

/// Known drivers of the platform's strategy group.
pub const TABLE: &[BuiltIn] = &[
    BuiltIn {
        kind: "Altinity",
        capabilities: Capabilities {
            deletion: Deletion::None,
            size: SizeReport::None,
            pruning: Pruning::None,
            identity: IdentityKind::Unknown,
            grows_after_ready: false,
            enumerable: Enumerable::Listing,
        },
        deadline_seconds: None,
        dies_with_job: true,
        evidence: "cleanup does nothing; the archive's name is made inside the pod and never recorded; every archive is kept",
    },
    BuiltIn {
        kind: "CNPG",
        capabilities: Capabilities {
            deletion: Deletion::RecordOnly,
            size: SizeReport::None,
            pruning: Pruning::Driver,
            identity: IdentityKind::Unique,
            grows_after_ready: true,
            enumerable: Enumerable::OperatorCr,
        },
        deadline_seconds: Some(30 * 60),
        dies_with_job: false,
        evidence: "cleanup deletes the operator's Backup only; the catalog keeps base backup and WAL; a retention window prunes; WAL goes on by itself",
    },
    BuiltIn {
        kind: "Etcd",
        capabilities: Capabilities {
            deletion: Deletion::None,
            size: SizeReport::Driver,
            pruning: Pruning::None,
            identity: IdentityKind::Unique,
            grows_after_ready: false,
            enumerable: Enumerable::Listing,
        },
        deadline_seconds: Some(20 * 60),
        dies_with_job: false,
        evidence: "cleanup has no case for it; the agent reports size and checksum; nothing prunes",
    },
    BuiltIn {
        kind: "FoundationDB",
        capabilities: Capabilities {
            deletion: Deletion::None,
            size: SizeReport::None,
            pruning: Pruning::None,
            identity: IdentityKind::Shared,
            grows_after_ready: true,
            enumerable: Enumerable::No,
        },
        deadline_seconds: Some(45 * 60),
        dies_with_job: false,
        evidence: "cleanup does nothing; the agent keeps streaming; a fixed backup name makes several Backups refer to one stream",
    },
    BuiltIn {
        kind: "Job",
        capabilities: Capabilities {
            deletion: Deletion::None,
            size: SizeReport::None,
            pruning: Pruning::Unknown,
            identity: IdentityKind::Unknown,
            grows_after_ready: false,
            enumerable: Enumerable::No,
        },
        deadline_seconds: None,
        dies_with_job: true,
        evidence: "cleanup does nothing; what the script writes, and whether it overwrites, is not recorded",
    },
    BuiltIn {
        kind: "MariaDB",
        capabilities: Capabilities {
            deletion: Deletion::None,
            size: SizeReport::None,
            pruning: Pruning::DriverOnNextRun,
            identity: IdentityKind::Unique,
            grows_after_ready: false,
            enumerable: Enumerable::Listing,
        },
        deadline_seconds: Some(30 * 60),
        dies_with_job: false,
        evidence: "cleanup does nothing; the next run prunes by date (30 days unless set); a file for each run, its name not recorded",
    },
    BuiltIn {
        kind: "MongoDB",
        capabilities: Capabilities {
            deletion: Deletion::None,
            size: SizeReport::None,
            pruning: Pruning::None,
            identity: IdentityKind::Unique,
            grows_after_ready: true,
            enumerable: Enumerable::OperatorCr,
        },
        deadline_seconds: Some(30 * 60),
        dies_with_job: false,
        evidence: "cleanup does nothing and the operator's object has no delete finalizer; on-demand backups are never pruned; the oplog goes on by itself",
    },
    BuiltIn {
        kind: "Velero",
        capabilities: Capabilities {
            deletion: Deletion::Requested,
            size: SizeReport::None,
            pruning: Pruning::Ttl,
            identity: IdentityKind::Shared,
            grows_after_ready: false,
            enumerable: Enumerable::OperatorCr,
        },
        deadline_seconds: None,
        dies_with_job: false,
        evidence: "cleanup posts a DeleteBackupRequest and does not wait; it may fail for good; a shared repository frees content only by later maintenance",
    },
    BuiltIn {
        kind: "RabbitMQ",
        capabilities: Capabilities {
            deletion: Deletion::Requested,
            size: SizeReport::None,
            pruning: Pruning::None,
            identity: IdentityKind::Unique,
            grows_after_ready: false,
            enumerable: Enumerable::Listing,
        },
        deadline_seconds: None,
        dies_with_job: false,
        evidence: "cleanup starts a Job that nobody waits for and whose errors are dropped",
    },
    BuiltIn {
        kind: "Redis",
        capabilities: Capabilities {
            deletion: Deletion::None,
            size: SizeReport::None,
            pruning: Pruning::None,
            identity: IdentityKind::Shared,
            grows_after_ready: false,
            enumerable: Enumerable::No,
        },
        deadline_seconds: None,
        dies_with_job: false,
        evidence: "every run writes one fixed object name",
    },
    BuiltIn {
        kind: "Bucket",
        capabilities: Capabilities {
            deletion: Deletion::None,
            size: SizeReport::None,
            pruning: Pruning::None,
            identity: IdentityKind::Unknown,
            grows_after_ready: true,
            enumerable: Enumerable::No,
        },
        deadline_seconds: None,
        dies_with_job: false,
        evidence: "cleanup has no case for it",
    },
];

/// The row of a strategy, if it is one of the platform's group and known.
#[must_use]
pub fn built_in(platform_group: &str, group: &str, kind: &str) -> Option<&'static BuiltIn> {
    if group != platform_group {
        return None;
    }
    TABLE.iter().find(|row| row.kind == kind)
}

/// Why a declaration is refused. The sentence names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// Not JSON, or not an object.
    #[error("the annotation is not a JSON object ({0}): write for example {{\"deletion\":\"none\"}}")]
    NotAnObject(String),
    /// A field nobody knows: a misspelt one would be ignored.
    #[error("{0} is no field: the fields are deletion, size, pruning, identity, growsAfterReady, enumerable")]
    UnknownField(String),
    /// A field with a word nobody knows, or of another type.
    #[error("{field} cannot be {value}: it is one of {expected}")]
    BadValue {
        /// The field.
        field: &'static str,
        /// What was written.
        value: String,
        /// What may be written.
        expected: String,
    },
}

/// Reads a declaration over `base`: fields it does not have stay as they are.
///
/// # Errors
/// The first field that cannot be read; nothing of the declaration is then in force.
pub fn declared(text: &str, base: Capabilities) -> Result<Capabilities, DeclarationError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| DeclarationError::NotAnObject(error.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(DeclarationError::NotAnObject(
            "it is another kind of value".to_owned(),
        ));
    };
    let mut all = base;
    for (field, value) in &fields {
        match field.as_str() {
            "deletion" => all.deletion = word("deletion", value, Deletion::ALL, Deletion::as_str)?,
            "size" => all.size = word("size", value, SizeReport::ALL, SizeReport::as_str)?,
            "pruning" => all.pruning = word("pruning", value, Pruning::ALL, Pruning::as_str)?,
            "identity" => all.identity = word("identity", value, IdentityKind::ALL, IdentityKind::as_str)?,
            "enumerable" => all.enumerable = word("enumerable", value, Enumerable::ALL, Enumerable::as_str)?,
            "growsAfterReady" => {
                all.grows_after_ready = value.as_bool().ok_or_else(|| DeclarationError::BadValue {
                    field: "growsAfterReady",
                    value: value.to_string(),
                    expected: "true, false".to_owned(),
                })?;
            }
            other => return Err(DeclarationError::UnknownField(other.to_owned())),
        }
    }
    Ok(all)
}

fn word<T: Copy>(
    field: &'static str,
    value: &Value,
    all: &[T],
    as_str: fn(T) -> &'static str,
) -> Result<T, DeclarationError> {
    value
        .as_str()
        .and_then(|text| all.iter().copied().find(|word| as_str(*word) == text))
        .ok_or_else(|| DeclarationError::BadValue {
            field,
            value: value.to_string(),
            expected: all
                .iter()
                .map(|word| as_str(*word))
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// What is in force for a strategy: the annotation over the built-in row over the careful values. An annotation that
/// cannot be read changes nothing, and the error says why.
#[must_use]
pub fn in_force(
    platform_group: &str,
    group: &str,
    kind: &str,
    annotation: Option<&str>,
) -> (InForce, Option<DeclarationError>) {
    let base = match built_in(platform_group, group, kind) {
        Some(row) => InForce {
            capabilities: row.capabilities,
            from: DeclaredBy::BuiltIn,
        },
        None => InForce {
            capabilities: CAREFUL,
            from: DeclaredBy::Unknown,
        },
    };
    match annotation.map(|text| declared(text, base.capabilities)) {
        None => (base, None),
        Some(Ok(capabilities)) => (
            InForce {
                capabilities,
                from: DeclaredBy::Annotation,
            },
            None,
        ),
        Some(Err(error)) => (base, Some(error)),
    }
}
