//! Policies in the manner of published ones: lists within lists, selectors that are matched, a call for
//! each element, images, and what makes Pods.

use anteroom_e2e::{check::condition, manifests, world::World};
use anyhow::Context;
use serde_json::Value;

use super::{
    HOME,
    Verdict::{Admitted, Refused},
    comes_to, created, tried,
};

/// A policy with the existing objects and the expected decisions on new objects.
struct Case {
    policy: &'static str,
    /// Documents of YAML.
    given: &'static str,
    admitted: &'static str,
    refused: &'static str,
    says: &'static str,
}

pub(crate) async fn every_case(world: &World) -> anyhow::Result<()> {
    for case in [
        BUDGETS, PATHS, SELECTORS, PRIORITIES, ACCOUNTS, SECRETS, NODES,
    ] {
        judge(world, &case).await?;
    }
    Ok(())
}

/// Every document, in the tests' own namespace where it names none.
fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut documents = manifests::parse(text)?;
    for document in &mut documents {
        if document["metadata"]["namespace"].is_null() && document["kind"] != "ClusterPolicy" {
            document["metadata"]["namespace"] = HOME.into();
        }
    }
    Ok(documents)
}

pub(crate) async fn install(world: &World, text: &str) -> anyhow::Result<Value> {
    let policy = documents(text)?.pop().context("a policy")?;
    world.create(&policy).await?;
    condition(world, &policy, "True", "").await?;
    Ok(policy)
}

async fn judge(world: &World, case: &Case) -> anyhow::Result<()> {
    let given = documents(case.given)?;
    for object in &given {
        created(world, object).await?;
    }
    let policy = install(world, case.policy).await?;
    let name = &policy["metadata"]["name"];
    for object in documents(case.refused)? {
        let what = format!("{name} of {}", object["metadata"]["name"]);
        let refused = Refused(case.says);
        comes_to(&what, &refused, async || tried(world, &object).await).await?;
    }
    for object in documents(case.admitted)? {
        let what = format!("{name} of {}", object["metadata"]["name"]);
        comes_to(&what, &Admitted, async || tried(world, &object).await).await?;
    }
    world.delete(&policy).await?;
    for object in given.iter().rev() {
        world.delete(object).await?;
    }
    Ok(())
}

const BUDGETS: Case = Case {
    policy: r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: replicas-above-budget}
spec:
  validationFailureAction: Enforce
  rules:
  - name: replicas
    match: {any: [{resources: {kinds: [Deployment], operations: [CREATE, UPDATE]}}]}
    context:
    - name: budgets
      apiCall:
        urlPath: /apis/policy/v1/namespaces/{{ request.namespace }}/poddisruptionbudgets
        jmesPath: items[?label_match(spec.selector.matchLabels, `{{ request.object.spec.template.metadata.labels }}`)]
    preconditions:
      all: [{key: "{{ length(budgets) }}", operator: GreaterThan, value: 0}]
    validate:
      message: "{{ request.object.spec.replicas }} replicas, and {{ element.metadata.name }} keeps {{ element.spec.minAvailable }}"
      foreach:
      - list: budgets
        deny:
          conditions:
            all:
            - {key: "{{ regex_match('^[0-9]+$', '{{ element.spec.minAvailable || '' }}') }}", operator: Equals, value: true}
            - {key: "{{ request.object.spec.replicas }}", operator: LessThanOrEquals, value: "{{ element.spec.minAvailable }}"}
"#,
    given: r#"
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: two}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: half}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}
"#,
    admitted: r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: enough}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: nginx}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: others}
spec:
  replicas: 1
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: nginx}]}}
"#,
    refused: r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: few}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: nginx}]}}
"#,
    says: "2 replicas, and two keeps 2",
};

const PATHS: Case = Case {
    policy: r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: unique-host-and-path}
spec:
  validationFailureAction: Enforce
  rules:
  - name: paths
    match: {any: [{resources: {kinds: [Ingress]}}]}
    context:
    - name: rules
      apiCall:
        urlPath: /apis/networking.k8s.io/v1/ingresses
        jmesPath: "items[?metadata.namespace != '{{ request.namespace }}' || metadata.name != '{{ request.object.metadata.name }}'].spec.rules[]"
    preconditions:
      all: [{key: "{{ request.operation || 'BACKGROUND' }}", operator: NotEquals, value: DELETE}]
    validate:
      message: "{{ element.host }} has such a path already"
      foreach:
      - list: request.object.spec.rules[]
        deny:
          conditions:
            all:
            - key: "{{ element.http.paths[].path }}"
              operator: AnyIn
              value: "{{ rules[?host=='{{ element.host }}'][].http.paths[].path }}"
"#,
    given: r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: one}
spec:
  rules:
  - host: a.example.com
    http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}, {path: /b, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}
"#,
    admitted: r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: two}
spec:
  rules:
  - host: a.example.com
    http: {paths: [{path: /c, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}
  - host: b.example.com
    http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}
"#,
    refused: r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: three}
spec:
  rules:
  - host: b.example.com
    http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}
  - host: a.example.com
    http: {paths: [{path: /c, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}, {path: /b, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}
"#,
    says: "a.example.com has such a path already",
};

const SELECTORS: Case = Case {
    policy: r#"
apiVersion: kyverno.io/v2beta1
kind: ClusterPolicy
metadata: {name: unique-selector}
spec:
  validationFailureAction: Enforce
  rules:
  - name: selectors
    match: {any: [{resources: {kinds: [Service]}}]}
    context:
    - name: own
      variable: {jmesPath: request.object.spec.selector, default: {}}
    - name: others
      apiCall:
        urlPath: "/api/v1/namespaces/{{ request.namespace }}/services"
        jmesPath: "items[?label_match(`{{ own }}`, spec.selector || `{}`) && metadata.name != '{{ request.object.metadata.name }}'].metadata.name"
    preconditions:
      all:
      - {key: "{{ request.operation }}", operator: NotEquals, value: DELETE}
      - {key: "{{ own | keys(@) | length(@) }}", operator: GreaterThan, value: 0}
    validate:
      message: "{{ others }} selects the same"
      deny: {conditions: {all: [{key: "{{ others | length(@) }}", operator: GreaterThan, value: 0}]}}
"#,
    given: r#"
apiVersion: v1
kind: Service
metadata: {name: first}
spec: {clusterIP: None, selector: {app: web, tier: front}, ports: [{port: 80}]}
"#,
    admitted: r#"
apiVersion: v1
kind: Service
metadata: {name: second}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: third}
spec: {clusterIP: None, ports: [{port: 80}]}
"#,
    refused: r#"
apiVersion: v1
kind: Service
metadata: {name: fourth}
spec: {clusterIP: None, selector: {app: web, tier: front}, ports: [{port: 80}]}
"#,
    says: "[\"first\"] selects the same",
};

const PRIORITIES: Case = Case {
    policy: r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: allowed-classes}
spec:
  validationFailureAction: Enforce
  background: false
  rules:
  - name: classes
    match: {any: [{resources: {kinds: [Pod]}}]}
    context:
    - name: classes
      configMap: {name: classes, namespace: "{{ request.namespace }}"}
    validate:
      message: "{{ request.object.spec.schedulerName }} is none of those of {{ request.namespace }}"
      deny:
        conditions:
          any:
          - key: "{{ request.object.spec.schedulerName }}"
            operator: AnyNotIn
            value: "{{ classes.data.\"{{ request.namespace }}\" }}"
"#,
    given: r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: classes, labels: {cache.kyverno.io/enabled: "true"}}
data: {cases: '["low", "high"]'}
"#,
    admitted: r#"
apiVersion: v1
kind: Pod
metadata: {name: good}
spec: {schedulerName: low, containers: [{name: c, image: nginx}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: good}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {schedulerName: high, restartPolicy: Never, containers: [{name: c, image: nginx}]}}}}}
"#,
    refused: r#"
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec: {schedulerName: other, containers: [{name: c, image: nginx}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: bad}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {schedulerName: other, restartPolicy: Never, containers: [{name: c, image: nginx}]}}}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: bad}
spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {schedulerName: other, containers: [{name: c, image: nginx}]}}}
"#,
    says: "other is none of those of cases",
};

const ACCOUNTS: Case = Case {
    policy: r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: restrict-accounts}
spec:
  validationFailureAction: Enforce
  rules:
  - name: accounts
    match: {any: [{resources: {kinds: [Pod], namespaces: [cases]}}]}
    context:
    - {name: accounts, configMap: {name: accounts, namespace: cases}}
    validate:
      message: "{{ images.containers.*.registry | [0] }} is not for {{ request.object.spec.serviceAccountName }}"
      deny:
        conditions:
          any:
          - key: "{{ images.containers.*.registry | [0] }}/{{ images.containers.*.path | [0] }}"
            operator: AnyNotIn
            value: "{{ accounts.data.\"{{ request.object.spec.serviceAccountName }}\" || '[]' }}"
"#,
    given: r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: accounts}
data: {builder: '["ghcr.io/team/app"]'}
"#,
    admitted: r#"
apiVersion: v1
kind: Pod
metadata: {name: good}
spec: {serviceAccountName: builder, containers: [{name: c, image: "ghcr.io/team/app:v1"}]}
"#,
    refused: r#"
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec: {serviceAccountName: builder, containers: [{name: c, image: "nginx"}]}
"#,
    says: "docker.io is not for builder",
};

const SECRETS: Case = Case {
    policy: r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: secrets-by-label}
spec:
  validationFailureAction: Enforce
  background: false
  rules:
  - name: secrets
    match: {any: [{resources: {kinds: [Pod]}}]}
    preconditions:
      all:
      - {key: "{{ request.object.spec.containers[].env[].valueFrom.secretKeyRef || `[]` | length(@) }}", operator: GreaterThanOrEquals, value: 1}
      - {key: "{{ request.operation }}", operator: NotEquals, value: DELETE}
    validate:
      message: "Secret {{ element.valueFrom.secretKeyRef.name }} is {{ status }}"
      foreach:
      - list: "request.object.spec.containers[].env[]"
        context:
        - name: status
          apiCall:
            urlPath: "/api/v1/namespaces/{{ request.namespace }}/secrets/{{ element.valueFrom.secretKeyRef.name }}"
            jmesPath: "metadata.labels.status || ''"
        deny: {conditions: {all: [{key: "{{ status }}", operator: Equals, value: protected}]}}
"#,
    given: r#"
apiVersion: v1
kind: Secret
metadata: {name: hidden, labels: {status: protected}}
stringData: {a: b}
---
apiVersion: v1
kind: Secret
metadata: {name: open}
stringData: {a: b}
"#,
    admitted: r#"
apiVersion: v1
kind: Pod
metadata: {name: good}
spec: {containers: [{name: c, image: nginx, env: [{name: A, valueFrom: {secretKeyRef: {name: open, key: a}}}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: none}
spec: {containers: [{name: c, image: nginx}]}
"#,
    refused: r#"
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec: {containers: [{name: c, image: nginx, env: [{name: A, valueFrom: {secretKeyRef: {name: open, key: a}}}, {name: B, valueFrom: {secretKeyRef: {name: hidden, key: a}}}]}]}
"#,
    says: "Secret hidden is protected",
};

const NODES: Case = Case {
    policy: r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: pods-of-a-node}
spec:
  validationFailureAction: Enforce
  rules:
  - name: count
    match: {any: [{resources: {kinds: [Pod]}}]}
    context:
    - name: count
      apiCall:
        urlPath: "/api/v1/pods"
        jmesPath: "items[?spec.nodeName=='node-1'] | length(@)"
    preconditions: {any: [{key: "{{ request.operation }}", operator: Equals, value: CREATE}]}
    validate:
      message: "node-1 has {{ count }} Pods"
      deny:
        conditions:
          all:
          - {key: "{{ count }}", operator: GreaterThan, value: 1}
          - {key: "{{ request.object.spec.nodeName || '' }}", operator: Equals, value: node-1}
"#,
    given: r#"
apiVersion: v1
kind: Pod
metadata: {name: first}
spec: {nodeName: node-1, containers: [{name: c, image: nginx}]}
---
apiVersion: v1
kind: Pod
metadata: {name: second}
spec: {nodeName: node-1, containers: [{name: c, image: nginx}]}
"#,
    admitted: r#"
apiVersion: v1
kind: Pod
metadata: {name: elsewhere}
spec: {nodeName: node-2, containers: [{name: c, image: nginx}]}
"#,
    refused: r#"
apiVersion: v1
kind: Pod
metadata: {name: third}
spec: {nodeName: node-1, containers: [{name: c, image: nginx}]}
"#,
    says: "node-1 has 2 Pods",
};
