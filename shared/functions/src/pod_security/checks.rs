//! The Pod security controls, each with the fields that it forbids.

use serde_json::Value;

use super::{Level, Version, pod::Pod, shown};

/// The receiver of violations: the path, the container's image, and the values found there.
pub(super) type Tell<'t> = dyn FnMut(String, Option<String>, Vec<String>) + 't;

/// The control of profiles of seccomp.
pub(super) const SECCOMP: &str = "Seccomp";

/// One control at one level.
pub(super) struct Check {
    /// The name of the control in rules.
    pub(super) control: &'static str,
    /// The reason in messages for users.
    pub(super) reason: &'static str,
    level: Level,
    pub(super) is_of_containers: bool,
    /// Violations have a value that an exclusion's values are compared with.
    pub(super) is_compared: bool,
    pub(super) find: fn(&Pod<'_>, Version, &mut Tell<'_>),
}

impl Check {
    /// All levels but baseline ask for all that there is. As Kyverno has it, a check goes for every version: for one
    /// that is older than the check, its first form does.
    pub(super) fn applies(&self, level: Level) -> bool {
        level != Level::Baseline || self.level == level
    }

    const fn baseline(control: &'static str, reason: &'static str, find: Find) -> Self {
        Self {
            control,
            reason,
            level: Level::Baseline,
            is_of_containers: true,
            is_compared: true,
            find,
        }
    }

    const fn restricted(control: &'static str, reason: &'static str, find: Find) -> Self {
        Self {
            level: Level::Restricted,
            ..Self::baseline(control, reason, find)
        }
    }

    const fn of_pod(self) -> Self {
        Self {
            is_of_containers: false,
            ..self
        }
    }

    const fn not_compared(self) -> Self {
        Self {
            is_compared: false,
            ..self
        }
    }
}

type Find = fn(&Pod<'_>, Version, &mut Tell<'_>);

/// All of them.
pub(super) const CHECKS: &[Check] = &[
    Check::baseline("HostProcess", "hostProcess", host_process),
    Check::baseline("Host Namespaces", "host namespaces", host_namespaces).of_pod(),
    Check::baseline("Privileged Containers", "privileged", privileged),
    Check::baseline("Capabilities", "non-default capabilities", capabilities),
    Check::baseline("HostPath Volumes", "hostPath volumes", host_path).of_pod(),
    Check::baseline("Host Ports", "hostPort", host_ports),
    Check::baseline(
        "Host Probes / Lifecycle Hooks",
        "probe or lifecycle host",
        host_probes,
    ),
    Check::baseline("AppArmor", "forbidden AppArmor profile", app_armor),
    Check::baseline("SELinux", "seLinuxOptions", se_linux),
    Check::baseline("/proc Mount Type", "procMount", proc_mount),
    Check::baseline(SECCOMP, "seccompProfile", seccomp),
    Check::baseline("Sysctls", "forbidden sysctls", sysctls).of_pod(),
    Check::restricted("Volume Types", "restricted volume types", volume_types)
        .of_pod()
        .not_compared(),
    Check::restricted(
        "Privilege Escalation",
        "allowPrivilegeEscalation != false",
        privilege_escalation,
    ),
    Check::restricted(
        "Running as Non-root",
        "runAsNonRoot != true",
        run_as_non_root,
    ),
    Check::restricted("Running as Non-root user", "runAsUser=0", run_as_user),
    Check::restricted(SECCOMP, "seccompProfile", seccomp_restricted),
    Check::restricted(
        "Capabilities",
        "unrestricted capabilities",
        capabilities_restricted,
    ),
];

/// Checks profiles in the security contexts of the Pod and of each container: reports a type that is none of the
/// `allowed`, or none at all.
fn of_profiles(pod: &Pod<'_>, name: &str, allowed: &[&str], tell: &mut Tell<'_>) {
    let mut one = |path: String, image, context: &Value| {
        let profile = &context[name];
        if profile.is_object() && !allowed.iter().any(|known| profile["type"] == *known) {
            let kind = match &profile["type"] {
                Value::Null => String::new(),
                kind => shown(kind),
            };
            tell(
                format!("{path}.securityContext.{name}.type"),
                image,
                vec![kind],
            );
        }
    };
    one("spec".to_owned(), None, &pod.spec["securityContext"]);
    for container in pod.containers() {
        one(
            container.path.clone(),
            container.image(),
            container.security(),
        );
    }
}

/// Reports a field of the security contexts of the Pod and of each container where `is_bad` holds.
fn of_contexts(pod: &Pod<'_>, field: &str, is_bad: impl Fn(&Value) -> bool, tell: &mut Tell<'_>) {
    let pointer = format!("/{}", field.replace('.', "/"));
    let found = |context: &Value| {
        context
            .pointer(&pointer)
            .filter(|value| is_bad(value))
            .map(shown)
    };
    if let Some(value) = found(&pod.spec["securityContext"]) {
        tell(format!("spec.securityContext.{field}"), None, vec![value]);
    }
    for container in pod.containers() {
        if let Some(value) = found(container.security()) {
            let path = format!("{}.securityContext.{field}", container.path);
            tell(path, container.image(), vec![value]);
        }
    }
}

/// Reports a field of the security context of each container where `is_bad` holds.
fn of_containers(pod: &Pod<'_>, field: &str, is_bad: impl Fn(&Value) -> bool, tell: &mut Tell<'_>) {
    for container in pod.containers() {
        let value = &container.security()[field];
        if is_bad(value) {
            let path = format!("{}.securityContext.{field}", container.path);
            let value = if value.is_null() {
                String::new()
            } else {
                shown(value)
            };
            tell(path, container.image(), vec![value]);
        }
    }
}

fn host_process(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    of_contexts(
        pod,
        "windowsOptions.hostProcess",
        |value| value == true,
        tell,
    );
}

fn host_namespaces(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if pod.spec[field] == true {
            tell(format!("spec.{field}"), None, vec!["true".to_owned()]);
        }
    }
}

fn privileged(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    of_containers(pod, "privileged", |value| value == true, tell);
}

/// The capabilities that a container runtime gives by default.
const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

fn capabilities(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    added_capabilities(pod, DEFAULT_CAPABILITIES, tell);
}

fn capabilities_restricted(pod: &Pod<'_>, version: Version, tell: &mut Tell<'_>) {
    if pod.is_windows() && version.is_since(25) {
        return;
    }
    for container in pod.containers() {
        let dropped = container.security()["capabilities"]["drop"].as_array();
        let drops_all = dropped.is_some_and(|all| all.iter().any(|one| one == "ALL"));
        if !drops_all {
            let dropped: Vec<_> = dropped.into_iter().flatten().map(shown).collect();
            let values = if dropped.is_empty() {
                vec![String::new()]
            } else {
                dropped
            };
            let path = format!("{}.securityContext.capabilities.drop", container.path);
            tell(path, container.image(), values);
        }
    }
    added_capabilities(pod, &["NET_BIND_SERVICE"], tell);
}

fn added_capabilities(pod: &Pod<'_>, allowed: &[&str], tell: &mut Tell<'_>) {
    for container in pod.containers() {
        let added = container.security()["capabilities"]["add"].as_array();
        let added = added.into_iter().flatten().map(shown);
        let bad: Vec<_> = added.filter(|one| !allowed.contains(&&**one)).collect();
        if !bad.is_empty() {
            let path = format!("{}.securityContext.capabilities.add", container.path);
            tell(path, container.image(), bad);
        }
    }
}

fn host_path(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    for (at, volume) in pod.volumes() {
        if !volume["hostPath"].is_null() {
            let path = shown(&volume["hostPath"]["path"]);
            tell(format!("spec.volumes[{at}].hostPath"), None, vec![path]);
        }
    }
}

fn host_ports(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    for container in pod.containers() {
        let ports = container.value["ports"].as_array().into_iter().flatten();
        for (at, port) in ports.enumerate() {
            let port = &port["hostPort"];
            if !port.is_null() && port != 0 {
                let path = format!("{}.ports[{at}].hostPort", container.path);
                tell(path, container.image(), vec![shown(port)]);
            }
        }
    }
}

/// The fields that name a host for the kubelet to call.
const HOOKS: &[&str] = &[
    "/livenessProbe",
    "/readinessProbe",
    "/startupProbe",
    "/lifecycle/postStart",
    "/lifecycle/preStop",
];

fn host_probes(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    for container in pod.containers() {
        for hook in HOOKS {
            for way in ["httpGet", "tcpSocket"] {
                let host = container.value.pointer(&format!("{hook}/{way}/host"));
                if let Some(host) = host.filter(|host| !host.is_null() && **host != "") {
                    let field = hook.replace('/', ".");
                    let path = format!("{}{field}.{way}.host", container.path);
                    tell(path, container.image(), vec![shown(host)]);
                }
            }
        }
    }
}

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

fn app_armor(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    of_profiles(pod, "appArmorProfile", PROFILE_TYPES, tell);
    let annotations = pod.metadata["annotations"].as_object();
    for (key, value) in annotations.into_iter().flatten() {
        let profile = shown(value);
        let is_allowed =
            ["", "runtime/default"].contains(&&*profile) || profile.starts_with("localhost/");
        if key.starts_with(APP_ARMOR) && !is_allowed {
            tell(format!("metadata.annotations[{key}]"), None, vec![profile]);
        }
    }
}

const SE_LINUX_TYPES: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];

fn se_linux(pod: &Pod<'_>, version: Version, tell: &mut Tell<'_>) {
    let is_engine = |value: &Value| value == "container_engine_t" && version.is_since(31);
    let is_bad_type = |value: &Value| {
        !value.is_null() && !SE_LINUX_TYPES.iter().any(|one| value == one) && !is_engine(value)
    };
    of_contexts(pod, "seLinuxOptions.type", is_bad_type, tell);
    for field in ["seLinuxOptions.user", "seLinuxOptions.role"] {
        of_contexts(pod, field, |value| !value.is_null() && value != "", tell);
    }
}

fn proc_mount(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    of_containers(
        pod,
        "procMount",
        |value| !value.is_null() && value != "Default",
        tell,
    );
}

const PROFILE_TYPES: &[&str] = &["RuntimeDefault", "Localhost"];

const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

fn seccomp(pod: &Pod<'_>, version: Version, tell: &mut Tell<'_>) {
    if version.is_since(19) {
        of_profiles(pod, "seccompProfile", PROFILE_TYPES, tell);
        return;
    }
    // Before there was a field, annotations said it.
    let names = pod.containers().map(|container| {
        let name = container.value["name"].as_str().unwrap_or_default();
        format!("{SECCOMP_OF_CONTAINER}{name}")
    });
    for key in std::iter::once(SECCOMP_OF_POD.to_owned()).chain(names) {
        let profile = &pod.metadata["annotations"][&key];
        let profile = profile.as_str().unwrap_or("runtime/default");
        let is_allowed = ["runtime/default", "docker/default"].contains(&profile)
            || profile.starts_with("localhost/");
        if !is_allowed {
            let value = profile.to_owned();
            tell(format!("metadata.annotations[{key}]"), None, vec![value]);
        }
    }
}

fn seccomp_restricted(pod: &Pod<'_>, version: Version, tell: &mut Tell<'_>) {
    if pod.is_windows() && version.is_since(25) {
        return;
    }
    of_profiles(pod, "seccompProfile", PROFILE_TYPES, tell);
    or_of_pod(pod, "seccompProfile", Value::is_object, ".type", tell);
}

/// Checks that a field is set for each container: by itself, or by the Pod to a value that `holds`.
fn or_of_pod(
    pod: &Pod<'_>,
    field: &str,
    holds: impl Fn(&Value) -> bool,
    below: &str,
    tell: &mut Tell<'_>,
) {
    if holds(&pod.spec["securityContext"][field]) {
        return;
    }
    for container in pod.containers() {
        if container.security()[field].is_null() {
            let path = format!("{}.securityContext.{field}{below}", container.path);
            tell(path, container.image(), vec![String::new()]);
        }
    }
}

/// The sysctls of a Pod's own namespaces, and since which version they are allowed.
const SYSCTLS: &[(&str, u32)] = &[
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(pod: &Pod<'_>, version: Version, tell: &mut Tell<'_>) {
    let sysctls = pod.spec["securityContext"]["sysctls"].as_array();
    for (at, sysctl) in sysctls.into_iter().flatten().enumerate() {
        let name = shown(&sysctl["name"]);
        let mut allowed = SYSCTLS.iter().filter(|(_, since)| version.is_since(*since));
        if !allowed.any(|(known, _)| *known == name) {
            let path = format!("spec.securityContext.sysctls[{at}].name");
            tell(path, None, vec![name]);
        }
    }
}

const VOLUME_TYPES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn volume_types(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    for (at, volume) in pod.volumes() {
        let fields = volume.as_object().into_iter().flatten();
        let types = fields.filter(|(name, value)| *name != "name" && !value.is_null());
        let types: Vec<_> = types.map(|(name, _)| name.as_str()).collect();
        let bad = types.iter().filter(|name| !VOLUME_TYPES.contains(name));
        // A volume without any source has an unknown type.
        let unknown = types.is_empty().then_some(&"unknown");
        for name in bad.chain(unknown) {
            let path = format!("spec.volumes[{at}].{name}");
            tell(path, None, vec![(*name).to_owned()]);
        }
    }
}

fn privilege_escalation(pod: &Pod<'_>, version: Version, tell: &mut Tell<'_>) {
    if pod.is_windows() && version.is_since(25) {
        return;
    }
    for container in pod.containers() {
        let security = container.security();
        let value = match &security["allowPrivilegeEscalation"] {
            Value::Bool(false) => continue,
            // What an exclusion's values are compared with.
            Value::Null if security.is_object() => "nil".to_owned(),
            Value::Null => String::new(),
            value => shown(value),
        };
        let path = format!(
            "{}.securityContext.allowPrivilegeEscalation",
            container.path
        );
        tell(path, container.image(), vec![value]);
    }
}

fn run_as_non_root(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    of_contexts(
        pod,
        "runAsNonRoot",
        |value| !value.is_null() && value != true,
        tell,
    );
    or_of_pod(pod, "runAsNonRoot", |value| value == true, "", tell);
}

fn run_as_user(pod: &Pod<'_>, _: Version, tell: &mut Tell<'_>) {
    of_contexts(pod, "runAsUser", |value| value == 0, tell);
}
