//! The fields of the interface that this release refuses by name.
//!
//! **Promises.** One table. From it come the CEL rules of the definitions ([`crate::crd`]) and the lines of the
//! docs; the validators ([`crate::validate`]) refuse the same fields, and a test compares the two.

/// One refused field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported {
    /// Where the field's parent is in the object, e.g. `spec.backend`; `[]` stands for the items of a list.
    pub parent: &'static str,
    /// The field.
    pub field: &'static str,
    /// What to do instead.
    pub instead: &'static str,
    /// Its type in the interface, so that a value written for it reaches the rule that refuses it.
    pub shape: Shape,
}

/// Type of a refused field in the schema (CEL only sees typed fields).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An object of any content.
    Object,
    /// A list of objects.
    Objects,
    /// A list of strings.
    Strings,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
}

impl Unsupported {
    /// The whole path, e.g. `spec.backend.gcs`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.parent, self.field)
    }

    /// The sentence with which the field is refused.
    #[must_use]
    pub fn message(&self) -> String {
        format!(
            "{} is not supported by this release: {}",
            self.path(),
            self.instead
        )
    }
}

const fn no(parent: &'static str, field: &'static str, instead: &'static str) -> Unsupported {
    typed(Shape::Object, parent, field, instead)
}

const fn typed(
    shape: Shape,
    parent: &'static str,
    field: &'static str,
    instead: &'static str,
) -> Unsupported {
    Unsupported {
        parent,
        field,
        instead,
        shape,
    }
}

const DROP: &str = "remove the field";
const BACKEND: &str = "use spec.backend.filesystem or spec.backend.s3";
const PVC: &str = "use sources[].pvc";
const ENGINE: &str = "remove the field, the engine chooses for itself";

const ALWAYS: &str = "remove the field: movers run without privilege escalation, with a read-only root, and as root only by spec.mover.privilegedMode";
const USER: &str = "set it in securityContext";
const CACHE: &str = "remove the field: movers keep their cache in an emptyDir";

/// A table with what is refused of the settings of movers at this place.
macro_rules! with_mover {
    ($at:literal, $($row:expr),* $(,)?) => {
        &[
            $($row,)*
            no($at, "cache", CACHE),
            no($at, "scratch", CACHE),
            no($at, "affinity", "use nodeSelector and tolerations"),
            no($at, "sourceColocation", DROP),
            typed(
                Shape::Integer,
                $at,
                "ttlSecondsAfterFinished",
                "remove the field: a Job goes an hour after its result was recorded",
            ),
            no($at, "throttle", DROP),
            no($at, "podLabels", DROP),
            no($at, "podAnnotations", DROP),
            typed(Shape::Boolean, concat!($at, ".securityContext"), "allowPrivilegeEscalation", ALWAYS),
            no(concat!($at, ".securityContext"), "appArmorProfile", DROP),
            no(concat!($at, ".securityContext"), "capabilities", ALWAYS),
            typed(Shape::Boolean, concat!($at, ".securityContext"), "privileged", ALWAYS),
            typed(Shape::String, concat!($at, ".securityContext"), "procMount", DROP),
            typed(Shape::Boolean, concat!($at, ".securityContext"), "readOnlyRootFilesystem", ALWAYS),
            typed(Shape::Boolean, concat!($at, ".securityContext"), "runAsNonRoot", ALWAYS),
            no(concat!($at, ".securityContext"), "seLinuxOptions", DROP),
            no(concat!($at, ".securityContext"), "seccompProfile", DROP),
            no(concat!($at, ".securityContext"), "windowsOptions", DROP),
            no(concat!($at, ".podSecurityContext"), "appArmorProfile", DROP),
            typed(Shape::Integer, concat!($at, ".podSecurityContext"), "runAsGroup", USER),
            typed(Shape::Boolean, concat!($at, ".podSecurityContext"), "runAsNonRoot", ALWAYS),
            typed(Shape::Integer, concat!($at, ".podSecurityContext"), "runAsUser", USER),
            typed(Shape::String, concat!($at, ".podSecurityContext"), "seLinuxChangePolicy", DROP),
            no(concat!($at, ".podSecurityContext"), "seLinuxOptions", DROP),
            no(concat!($at, ".podSecurityContext"), "seccompProfile", DROP),
            typed(Shape::String, concat!($at, ".podSecurityContext"), "supplementalGroupsPolicy", DROP),
            typed(Shape::Objects, concat!($at, ".podSecurityContext"), "sysctls", DROP),
            no(concat!($at, ".podSecurityContext"), "windowsOptions", DROP),
            typed(Shape::Objects, concat!($at, ".resources"), "claims", DROP),
        ]
    };
}

/// Of a Repository.
pub const REPOSITORY: &[Unsupported] = with_mover!(
    "spec.moverDefaults",
    no(
        "spec.catalog",
        "fallbackNamespace",
        "create the namespace that the hostname names, or add it to spec.allowedNamespaces",
    ),
    no("spec.catalog", "foreignSnapshots", DROP),
    no(
        "spec",
        "maintenance",
        "make a Maintenance that names the repository",
    ),
    no("spec", "server", DROP),
    typed(Shape::Integer, "spec.health", "indexBlobWarnThreshold", DROP),
    no("spec", "bootstrap", DROP),
    no("spec", "concurrency", DROP),
    no("spec", "parameters", DROP),
    no("spec", "seed", DROP),
    no("spec.backend", "azure", BACKEND),
    no("spec.backend", "gcs", BACKEND),
    no("spec.backend", "b2", BACKEND),
    no("spec.backend", "sftp", BACKEND),
    no("spec.backend", "webDav", BACKEND),
    no("spec.backend", "rclone", BACKEND),
    no("spec.backend", "gdrive", BACKEND),
    no(
        "spec.backend.s3.auth",
        "workloadIdentity",
        "use auth.secretRef, with a Secret that holds the keys",
    ),
    typed(Shape::String, "spec.create", "encryption", ENGINE),
    typed(Shape::String, "spec.create", "splitter", ENGINE),
    typed(Shape::String, "spec.create", "hash", ENGINE),
    no("spec.create", "ecc", ENGINE),
);

/// Of a ClusterRepository, beyond those of a Repository.
pub const CLUSTER_REPOSITORY: &[Unsupported] = &[];

/// Of a SnapshotPolicy.
pub const POLICY: &[Unsupported] = with_mover!(
    "spec.mover",
    typed(
        Shape::Objects,
        "spec",
        "repositories",
        "use spec.repository, with a policy for each repository",
    ),
    typed(
        Shape::String,
        "spec",
        "volumeSnapshotClassName",
        "remove the field and use copyMethod: Direct",
    ),
    no("spec", "staging", "remove the field and use copyMethod: Direct"),
    typed(Shape::String, "spec", "groupBy", DROP),
    no("spec", "compression", DROP),
    no("spec", "files", DROP),
    no("spec", "errorHandling", DROP),
    no("spec", "upload", DROP),
    no("spec", "verification", DROP),
    no("spec", "preflight", DROP),
    no("spec", "hooks", DROP),
    typed(Shape::Strings, "spec", "extraArgs", DROP),
    no("spec.sources[]", "pvcSelector", PVC),
    no("spec.sources[]", "nfs", PVC),
    no("spec.sources[]", "stream", PVC),
    typed(Shape::String, "spec.sources[]", "sourcePathOverride", DROP),
    typed(Shape::String, "spec.sources[]", "sourcePathStrategy", DROP),
    typed(Shape::Boolean, "spec.sources[]", "acknowledgeLiveMutation", DROP),
    no(
        "spec.mover",
        "inheritSecurityContextFrom",
        "set spec.mover.securityContext"
    ),
);

/// Of a SnapshotSchedule.
pub const SCHEDULE: &[Unsupported] = &[no(
    "spec.policyRef",
    "namespace",
    "put the schedule into the policy's namespace",
)];

/// Of a Snapshot.
pub const SNAPSHOT: &[Unsupported] = &[
    typed(Shape::String, "spec", "description", "use spec.tags"),
    no(
        "spec",
        "repository",
        "remove the field: the policy names the repository",
    ),
    no(
        "spec.policyRef",
        "namespace",
        "put the Snapshot into the policy's namespace",
    ),
    typed(
        Shape::Integer,
        "spec.failurePolicy",
        "podStartupDeadlineSeconds",
        DROP,
    ),
];

/// Of a Maintenance.
pub const MAINTENANCE: &[Unsupported] = &[
    no("spec", "mover", DROP),
    no(
        "spec",
        "credentialProjection",
        "remove the field: its Jobs run where the repository's Secret is",
    ),
    typed(
        Shape::Integer,
        "spec.failurePolicy",
        "podStartupDeadlineSeconds",
        DROP,
    ),
];

/// Of a Restore.
pub const RESTORE: &[Unsupported] = with_mover!(
    "spec.mover",
    no(
        "spec.mover",
        "inheritSecurityContextFrom",
        "set spec.mover.securityContext"
    ),
    typed(
        Shape::String,
        "spec.source.snapshotRef",
        "namespace",
        "put the Restore into the Snapshot's namespace",
    ),
    typed(
        Shape::String,
        "spec.source.fromPolicy",
        "namespace",
        "put the Restore into the policy's namespace",
    ),
    no(
        "spec.target",
        "stream",
        "restore to a claim, and read it from there",
    ),
    typed(
        Shape::String,
        "spec.target.pvcRef",
        "namespace",
        "put the Restore into the claim's namespace",
    ),
    typed(Shape::Boolean, "spec.options", "writeFilesAtomically", DROP),
    typed(Shape::Integer, "spec.options", "parallel", ENGINE),
    typed(Shape::Boolean, "spec.options", "skipPermissions", DROP),
    typed(Shape::Boolean, "spec.options", "skipTimes", DROP),
    typed(
        Shape::Boolean,
        "spec.options",
        "overwriteDirectories",
        "use spec.options.overwriteFiles",
    ),
    typed(
        Shape::Boolean,
        "spec.options",
        "overwriteSymlinks",
        "use spec.options.overwriteFiles, which replaces links too",
    ),
    typed(Shape::Boolean, "spec.options", "ignoreErrors", DROP),
    typed(
        Shape::Integer,
        "spec.failurePolicy",
        "podStartupDeadlineSeconds",
        DROP,
    ),
);
