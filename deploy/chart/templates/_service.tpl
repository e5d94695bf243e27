{{/*
A service's account, Deployment and disruption budget: (dict
  "root" $         "name" the Deployment's, which is also the program's
  "container" its container's name
  "login" its login to NATS
  "values" its values
  "token" true: it talks to the API server
  "env" its own environment variables, as YAML
  "ports" its ports beside "admin", as YAML
  "secrets" a list of (dict "name" the volume's "secret" … "path" … "optional" …)
  "registries" true: the folder of registries' credentials)
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
        {{- include "anteroom.selector" . | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9090"
        prometheus.io/path: /metrics
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "anteroom.podSpec" . | nindent 6 }}
      {{- include "anteroom.spread" . | nindent 6 }}
      automountServiceAccountToken: {{ .token }}
      terminationGracePeriodSeconds: 30
      containers:
        - name: {{ .container }}
          image: {{ include "anteroom.image" (dict "root" $root "image" $root.Values.image "tag" $root.Chart.AppVersion) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [{{ .name }}]
          {{- with $values.container.extraArgs }}
          args:
            {{- range $flag, $value := . }}
            - {{ printf "--%s=%v" $flag $value | quote }}
            {{- end }}
          {{- end }}
          env:
            - {name: ANTEROOM_CLUSTER, value: {{ $root.Values.cluster | quote }}}
            - {name: ANTEROOM_LOG_FORMAT, value: {{ $root.Values.features.logging.format }}}
            {{- include "anteroom.variable" (list "ANTEROOM_LOG_LEVEL" $root.Values.features.logging.level) | indent 12 }}
            {{- include "anteroom.variable" (list "OTEL_EXPORTER_OTLP_ENDPOINT" $root.Values.features.tracing.endpoint) | indent 12 }}
            {{- include "anteroom.variable" (list "OTEL_EXPORTER_OTLP_PROTOCOL" $root.Values.features.tracing.protocol) | indent 12 }}
            - {name: ANTEROOM_NATS_URL, value: "nats://nats.{{ $root.Release.Namespace }}.svc:4222"}
            - {name: ANTEROOM_NATS_TLS, value: "true"}
            - {name: ANTEROOM_NATS_CA_FILE, value: /etc/anteroom/nats/ca.crt}
            - {name: ANTEROOM_NATS_NKEY_FILE, value: /etc/anteroom/nats/seed}
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            {{- .env | trim | nindent 12 }}
            {{- with concat $root.Values.global.extraEnvVars $values.container.extraEnvVars }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
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
      volumes:
        - name: nats-key
          secret: {secretName: anteroom-nats-{{ .login }}, defaultMode: 0440}
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
                  name: {{ .name }}
                  optional: true
                  items: [{key: .dockerconfigjson, path: {{ .folder | default .name }}/.dockerconfigjson}]
              {{- end }}
        {{- end }}
{{- if $values.podDisruptionBudget.enabled }}
---
{{ include "anteroom.budget" . }}
{{- end }}
{{- end }}

{{/* The volumes of keys for Secrets: what they are sealed with, and what they are asked for with */}}
{{- define "anteroom.askerKeys" -}}
{{- dict "name" "asker-keys" "secret" "anteroom-asker-keys" "path" "/etc/anteroom/asker" | toJson -}}
{{- end }}
{{- define "anteroom.sealKeys" -}}
{{- dict "name" "seal-keys" "secret" "anteroom-seal-keys" "path" "/etc/anteroom/seal" | toJson -}}
{{- end }}
