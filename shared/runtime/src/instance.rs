//! Default name of a process among others of its kind.

/// The pod's name (`POD_NAME`), where there is one: it can be found by that.
pub fn pod() -> Option<String> {
    pod_by(|name| std::env::var(name).ok())
}

/// The pod's name, else the host's (`HOSTNAME`, `/etc/hostname`), else `service`. Not unique outside of a
/// pod: several processes may share a host.
pub fn place(service: &str) -> String {
    let variable = |name: &str| std::env::var(name).ok();
    let file = || std::fs::read_to_string("/etc/hostname").ok();
    place_by(variable, file, service)
}

fn pod_by(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    variable("POD_NAME").as_deref().and_then(non_empty)
}

fn place_by(
    variable: impl Fn(&str) -> Option<String>,
    file: impl FnOnce() -> Option<String>,
    service: &str,
) -> String {
    pod_by(&variable)
        .or_else(|| variable("HOSTNAME").as_deref().and_then(non_empty))
        .or_else(|| file().as_deref().and_then(non_empty))
        .unwrap_or_else(|| service.to_owned())
}

/// An empty name is none.
fn non_empty(name: &str) -> Option<String> {
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_non_empty_source_names_the_instance() {
        let cases = [
            (["pod-0", "host"], Some("filed"), "pod-0"),
            (["", "host"], Some("filed"), "host"),
            (["", ""], Some("filed\n"), "filed"),
            ([" ", " "], Some("\n"), "watcher"),
            (["", ""], None, "watcher"),
        ];
        for ([pod, host], file, name) in cases {
            let variable = |name: &str| match name {
                "POD_NAME" => Some(pod.to_owned()),
                "HOSTNAME" => Some(host.to_owned()),
                _ => None,
            };
            let file = || file.map(str::to_owned);
            assert_eq!(place_by(variable, file, "watcher"), name);
        }
    }
}
