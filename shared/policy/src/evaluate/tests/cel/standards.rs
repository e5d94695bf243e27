//! Policies as they are published in CEL: good practice, and the Pod security standards.

use super::*;

/// A policy's rule with the Pods that the rule admits and the Pods that the rule denies.
struct Case {
    rule: &'static str,
    admits: Vec<Value>,
    denies: Vec<Value>,
}

/// Returns a Pod with a single container; `container` and `of_pod` add fields.
fn with(container: Value, of_pod: Value) -> Value {
    let mut one = json!({"name": "a", "image": "reg.io/x:1.0"});
    merge(&mut one, container);
    let mut spec = json!({"containers": [one]});
    merge(&mut spec, of_pod);
    spec
}

fn merge(into: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else {
        return;
    };
    for (name, value) in fields {
        into[name] = value;
    }
}

fn container(fields: Value) -> Value {
    with(fields, json!({}))
}

fn spec(fields: Value) -> Value {
    with(json!({}), fields)
}

fn hold(cases: Vec<Case>) {
    for case in cases {
        for admitted in case.admits {
            let outcome = outcome(case.rule, &pod(&admitted));
            let is_fine = matches!(outcome, RuleOutcome::Pass | RuleOutcome::Skipped { .. });
            assert!(is_fine, "{}: {admitted}: {outcome:?}", case.rule);
        }
        for denied in case.denies {
            let outcome = outcome(case.rule, &pod(&denied));
            let is_refused = matches!(outcome, RuleOutcome::Fail { .. });
            assert!(is_refused, "{}: {denied}: {outcome:?}", case.rule);
        }
    }
}

#[test]
fn the_baseline_standard_in_cel_judges_as_expected() {
    hold(vec![
        Case {
            rule: r#"
validate:
  cel:
    expressions:
    - message: Sharing the host namespaces is disallowed.
      expression: >-
        (!has(object.spec.hostNetwork) || object.spec.hostNetwork == false) &&
        (!has(object.spec.hostIPC) || object.spec.hostIPC == false) &&
        (!has(object.spec.hostPID) || object.spec.hostPID == false)
"#,
            admits: vec![spec(json!({})), spec(json!({"hostPID": false}))],
            denies: vec![
                spec(json!({"hostNetwork": true})),
                spec(json!({"hostIPC": true})),
            ],
        },
        Case {
            rule: r#"
validate:
  cel:
    variables:
    - name: allContainers
      expression: >-
        object.spec.containers + object.spec.?initContainers.orValue([]) +
        object.spec.?ephemeralContainers.orValue([])
    expressions:
    - message: Privileged mode is disallowed.
      expression: >-
        variables.allContainers.all(container,
        container.?securityContext.?privileged.orValue(false) == false)
"#,
            admits: vec![
                spec(json!({})),
                container(json!({"securityContext": {"privileged": false}})),
            ],
            denies: vec![
                container(json!({"securityContext": {"privileged": true}})),
                spec(
                    json!({"initContainers": [{"name": "i", "securityContext": {"privileged": true}}]}),
                ),
            ],
        },
        Case {
            rule: r#"
celPreconditions:
- {name: has containers, expression: has(object.spec.containers)}
validate:
  cel:
    variables:
    - name: allowedCapabilities
      expression: "['AUDIT_WRITE','CHOWN','DAC_OVERRIDE','FOWNER','FSETID','KILL','MKNOD','NET_BIND_SERVICE','SETFCAP','SETGID','SETPCAP','SETUID','SYS_CHROOT']"
    - name: allContainers
      expression: "(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))"
    expressions:
    - messageExpression: "'Any capabilities added beyond the allowed list ' + variables.allowedCapabilities.join(', ') + ' are disallowed.'"
      expression: >-
        variables.allContainers.all(container,
        !has(container.securityContext) || !has(container.securityContext.capabilities) ||
        !has(container.securityContext.capabilities.add) ||
        container.securityContext.capabilities.add.all(capability, capability in variables.allowedCapabilities))
"#,
            admits: vec![
                spec(json!({})),
                container(json!({"securityContext": {"capabilities": {"add": ["KILL"]}}})),
            ],
            denies: vec![container(
                json!({"securityContext": {"capabilities": {"add": ["KILL", "SYS_ADMIN"]}}}),
            )],
        },
        Case {
            rule: r#"
validate:
  cel:
    expressions:
    - message: HostPath volumes are forbidden.
      expression: "object.spec.?volumes.orValue([]).all(volume, !has(volume.hostPath))"
    - message: Host ports are disallowed.
      expression: >-
        object.spec.containers.all(container, !has(container.ports) ||
        container.ports.all(port, !has(port.hostPort) || port.hostPort == 0))
"#,
            admits: vec![
                spec(json!({"volumes": [{"name": "a", "emptyDir": {}}]})),
                container(
                    json!({"ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 0}]}),
                ),
            ],
            denies: vec![
                spec(json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]})),
                container(json!({"ports": [{"hostPort": 80}]})),
            ],
        },
        Case {
            rule: r#"
validate:
  cel:
    expressions:
    - message: Changing the proc mount from the default is not allowed.
      expression: >-
        object.spec.containers.all(container, !has(container.securityContext) ||
        !has(container.securityContext.procMount) || container.securityContext.procMount == 'Default')
"#,
            admits: vec![
                spec(json!({})),
                container(json!({"securityContext": {"procMount": "Default"}})),
            ],
            denies: vec![container(
                json!({"securityContext": {"procMount": "Unmasked"}}),
            )],
        },
    ]);
}

#[test]
fn the_restricted_standard_in_cel_judges_as_expected() {
    hold(vec![
        Case {
            rule: r#"
validate:
  cel:
    expressions:
    - message: Only core volume types may be used.
      expression: >-
        !has(object.spec.volumes) || object.spec.volumes.all(vol,
        has(vol.configMap) || has(vol.csi) || has(vol.downwardAPI) || has(vol.emptyDir) || has(vol.ephemeral) ||
        has(vol.persistentVolumeClaim) || has(vol.projected) || has(vol.secret))
"#,
            admits: vec![
                spec(json!({})),
                spec(json!({"volumes": [{"emptyDir": {}}, {"secret": {}}]})),
            ],
            denies: vec![spec(
                json!({"volumes": [{"emptyDir": {}}, {"gcePersistentDisk": {}}]}),
            )],
        },
        Case {
            rule: r#"
validate:
  cel:
    variables:
    - name: ofPod
      expression: object.spec.?securityContext.?runAsNonRoot.orValue(false)
    - name: allContainers
      expression: object.spec.containers + object.spec.?initContainers.orValue([])
    expressions:
    - message: Running as root is not allowed.
      expression: >-
        variables.allContainers.all(container,
        container.?securityContext.?runAsNonRoot.orValue(variables.ofPod) == true)
"#,
            admits: vec![
                spec(json!({"securityContext": {"runAsNonRoot": true}})),
                container(json!({"securityContext": {"runAsNonRoot": true}})),
            ],
            denies: vec![
                spec(json!({})),
                with(
                    json!({"securityContext": {"runAsNonRoot": false}}),
                    json!({"securityContext": {"runAsNonRoot": true}}),
                ),
            ],
        },
        Case {
            rule: r#"
validate:
  cel:
    variables:
    - name: types
      expression: "['RuntimeDefault', 'Localhost']"
    - name: podType
      expression: "object.spec.?securityContext.?seccompProfile.?type.orValue('none')"
    expressions:
    - message: Use of custom Seccomp profiles is disallowed.
      expression: >-
        object.spec.containers.all(container,
        container.?securityContext.?seccompProfile.?type.orValue(variables.podType) in variables.types)
"#,
            admits: vec![
                spec(json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}})),
                container(json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}})),
            ],
            denies: vec![
                spec(json!({})),
                container(json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})),
            ],
        },
        Case {
            rule: r#"
validate:
  cel:
    expressions:
    - message: Containers must drop ALL capabilities.
      expression: >-
        object.spec.containers.all(container,
        container.?securityContext.?capabilities.?drop.orValue([]).exists(capability, capability.upperAscii() == 'ALL'))
    - message: Privilege escalation is disallowed.
      expression: >-
        object.spec.containers.all(container, has(container.securityContext) &&
        has(container.securityContext.allowPrivilegeEscalation) &&
        container.securityContext.allowPrivilegeEscalation == false)
"#,
            admits: vec![container(
                json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["all"]}}}),
            )],
            denies: vec![
                spec(json!({})),
                container(json!({"securityContext": {"allowPrivilegeEscalation": false}})),
                container(json!({"securityContext": {"capabilities": {"drop": ["ALL"]}}})),
            ],
        },
    ]);
}

#[test]
fn good_practices_in_cel_judge_as_expected() {
    hold(vec![
        Case {
            rule: r#"
validate:
  cel:
    expressions:
    - message: An image tag is required, and a mutable one is not allowed.
      expression: "object.spec.containers.all(c, c.image.contains(':') && !c.image.endsWith(':latest'))"
"#,
            admits: vec![spec(json!({}))],
            denies: vec![
                container(json!({"image": "x"})),
                container(json!({"image": "x:latest"})),
            ],
        },
        Case {
            rule: r#"
validate:
  cel:
    variables:
    - {name: most, expression: quantity('1Gi')}
    expressions:
    - message: Requests and limits of memory are required.
      expression: >-
        object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && has(c.resources.limits.memory) &&
        isQuantity(c.resources.limits.memory) && !quantity(c.resources.limits.memory).isGreaterThan(variables.most))
"#,
            admits: vec![container(
                json!({"resources": {"limits": {"memory": "512Mi"}}}),
            )],
            denies: vec![
                spec(json!({})),
                container(json!({"resources": {"limits": {"memory": "2Gi"}}})),
            ],
        },
        Case {
            rule: r#"
validate:
  cel:
    expressions:
    - message: The label app is required.
      expression: "object.metadata.?labels.?app.orValue('') != ''"
    - message: Images come from the registry alone.
      expression: "object.spec.containers.all(c, c.image.matches('^reg[.]io/[a-z]+:[0-9.]+$'))"
    - message: Only internal resolvers.
      expression: "object.spec.?dnsConfig.?nameservers.orValue([]).all(s, isIP(s) && cidr('10.0.0.0/8').containsIP(s))"
"#,
            admits: vec![spec(json!({"dnsConfig": {"nameservers": ["10.1.1.1"]}}))],
            denies: vec![
                container(json!({"image": "other.io/x:1"})),
                spec(json!({"dnsConfig": {"nameservers": ["8.8.8.8"]}})),
            ],
        },
    ]);
}

/// A limit out of a ConfigMap, as a policy for replicas has it.
#[test]
fn a_limit_out_of_a_config_map() {
    let rule = r#"
validate:
  cel:
    paramKind: {apiVersion: v1, kind: ConfigMap}
    paramRef: {name: limits, namespace: rules, parameterNotFoundAction: Deny}
    expressions:
    - messageExpression: "'at most ' + params.data.most + ' containers'"
      expression: object.spec.containers.size() <= int(params.data.most)
"#;
    let come = |most: &str| {
        let limits =
            json!({"metadata": {"name": "limits", "namespace": "rules"}, "data": {"most": most}});
        let objects = [limits];
        drive(&policy(rule), &pod(&spec(json!({}))), kept(&objects))
            .0
            .outcome
    };
    assert_eq!(come("1"), RuleOutcome::Pass);
    assert_eq!(come("0"), fails("at most 0 containers"));
    assert!(matches!(come("many"), RuleOutcome::Fail { .. }));
}
