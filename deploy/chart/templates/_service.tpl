{{/*
A service's account, Deployment and disruption budget: (dict
  "root" $         "name" the Deployment's
  "container" its container's name
  "command" the service, as a command of `anteroom`, which is also its login to NATS
  "values" its values
  "token" true: it talks to the API server
  "env" its own environment variables, as YAML
  "ports" its ports beside "admin", as YAML
  "secrets" a list of (dict "name" the volume's "secret" … "path" … "optional" …)
  "registries" true: the folder of registries' credentials
  "exemptions" true: the folder with what is exempt from all policies)
*/}}
{{- define "anteroom.service" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{ include "anteroom.account" . }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "anteroom.metadata" . | nindent 2 }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels:
      {{- include "anteroom.selector" . | nindent 6 }}
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata:
      labels:
        {{- include "anteroom.podLabels" . | nindent 8 }}
      annotations:
        {{- $scraped := dict "prometheus.io/scrape" "true" "prometheus.io/port" "9090" "prometheus.io/path" "/metrics" }}
        {{- merge (dict) $values.podAnnotations $scraped | toYaml | nindent 8 }}
    spec:
      {{- include "anteroom.podSpec" . | nindent 6 }}
      {{- include "anteroom.spread" . | nindent 6 }}
      automountServiceAccountToken: {{ .token }}
      {{- /* What --shutdown-grace-seconds gives a service after its drain, and some more. */}}
      terminationGracePeriodSeconds: {{ add 30 (default 0 $values.drainSeconds) }}
      containers:
        - name: {{ .container }}
          image: {{ include "anteroom.image" (dict "root" $root "image" $root.Values.image "tag" $root.Chart.AppVersion) | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [anteroom, {{ .command }}]
          {{- with $values.container.extraArgs }}
          args:
            {{- range $flag, $value := . }}
            {{- if not (kindIs "bool" $value) }}
            {{- /* A number as it was written: Go writes large ones with an exponent. */}}
            - {{ printf "--%s=%s" $flag (ternary $value (toJson $value) (kindIs "string" $value)) | quote }}
            {{- else if $value }}
            - {{ printf "--%s" $flag | quote }}
            {{- end }}
            {{- end }}
          {{- end }}
          env:
            {{- include "anteroom.env" . | trim | nindent 12 }}
          ports:
            {{- with .ports }}
            {{- . | trim | nindent 12 }}
            {{- end }}
            - {name: admin, containerPort: 9090}
          startupProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 1
            failureThreshold: 30
          livenessProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 10
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /readyz, port: admin}
            periodSeconds: 2
            failureThreshold: 2
          resources:
            {{- toYaml $values.container.resources | nindent 12 }}
          securityContext:
            {{- include "anteroom.confined" . | nindent 12 }}
          volumeMounts:
            - {name: nats-key, mountPath: /etc/anteroom/nats, readOnly: true}
            {{- range .secrets }}
            - {name: {{ .name }}, mountPath: {{ .path }}, readOnly: true}
            {{- end }}
            {{- if .registries }}
            - {name: registries, mountPath: /etc/anteroom/registries, readOnly: true}
            {{- end }}
            {{- if .exemptions }}
            - {name: exemptions, mountPath: /etc/anteroom/exemptions, readOnly: true}
            {{- end }}
      volumes:
        - name: nats-key
          secret: {secretName: anteroom-nats-{{ .command }}, defaultMode: 0440}
        {{- range .secrets }}
        - name: {{ .name }}
          secret: {secretName: {{ .secret }}, optional: true, defaultMode: 0440}
        {{- end }}
        {{- if .registries }}
        # Secrets that policies name come beside it, each in a folder.
        - name: registries
          projected:
            defaultMode: 0440
            sources:
              - secret:
                  name: anteroom-registries
                  optional: true
                  items: [{key: .dockerconfigjson, path: .dockerconfigjson}]
              {{- range $values.registrySecrets }}
              - secret:
                  name: {{ .name | quote }}
                  optional: true
                  items: [{key: .dockerconfigjson, path: {{ printf "%s/.dockerconfigjson" (.folder | default .name) | quote }}}]
              {{- end }}
        {{- end }}
        {{- if .exemptions }}
        # A folder, not a file: a single file would not follow the ConfigMap.
        - name: exemptions
          configMap: {name: anteroom-exemptions}
        {{- end }}
{{- if $values.podDisruptionBudget.enabled }}
---
{{ include "anteroom.budget" . }}
{{- end }}
{{- end }}

{{/* A container's environment variables. Each of the values' own replaces one of ours by the same name. */}}
{{- define "anteroom.env" -}}
{{- $own := include "anteroom.ownEnv" . | fromYamlArray }}
{{- $given := concat .root.Values.global.extraEnvVars .values.container.extraEnvVars }}
{{- range $number, $variable := concat $own $given }}
{{- $later := slice (concat $own $given) (add1 $number) }}
{{- $isReplaced := false }}
{{- range $later }}{{ if eq .name $variable.name }}{{ $isReplaced = true }}{{ end }}{{ end }}
{{- if not $isReplaced }}
- {{ toJson $variable }}
{{- end }}
{{- end }}
{{- end }}

{{/* The way to NATS, with the key of a login */}}
{{- define "anteroom.natsEnv" -}}
- {name: ANTEROOM_NATS_URL, value: "nats://nats.{{ .root.Release.Namespace }}.svc:4222"}
- {name: ANTEROOM_NATS_TLS, value: "true"}
- {name: ANTEROOM_NATS_CA_FILE, value: /etc/anteroom/nats/ca.crt}
- {name: ANTEROOM_NATS_NKEY_FILE, value: /etc/anteroom/nats/seed}
{{- end }}

{{- define "anteroom.ownEnv" -}}
- {name: ANTEROOM_CLUSTER, value: {{ .root.Values.cluster | quote }}}
- {name: ANTEROOM_LOG_FORMAT, value: {{ .root.Values.features.logging.format }}}
{{- include "anteroom.variable" (list "ANTEROOM_LOG_LEVEL" .root.Values.features.logging.level) }}
{{- include "anteroom.variable" (list "OTEL_EXPORTER_OTLP_ENDPOINT" .root.Values.features.tracing.endpoint) }}
{{- include "anteroom.variable" (list "OTEL_EXPORTER_OTLP_PROTOCOL" .root.Values.features.tracing.protocol) }}
{{ include "anteroom.natsEnv" . }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{ .env | trim }}
{{- end }}

{{/* The volumes of keys for Secrets: what they are sealed with, and what they are asked for with */}}
{{- define "anteroom.askerKeys" -}}
{{- dict "name" "asker-keys" "secret" "anteroom-asker-keys" "path" "/etc/anteroom/asker" | toJson -}}
{{- end }}
{{- define "anteroom.sealKeys" -}}
{{- dict "name" "seal-keys" "secret" "anteroom-seal-keys" "path" "/etc/anteroom/seal" | toJson -}}
{{- end }}
