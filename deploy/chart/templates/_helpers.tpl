{{/* Labels of an object: (dict "root" $ "name" its app.kubernetes.io/name) */}}
{{- define "anteroom.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: anteroom
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* Labels that select a part's pods */}}
{{- define "anteroom.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: anteroom
{{- end }}

{{/* Labels of a part's pods: those that select them come first */}}
{{- define "anteroom.podLabels" -}}
{{ merge (include "anteroom.selector" . | fromYaml) .values.podLabels | toYaml }}
{{- end }}

{{/* metadata of an object in the installation's namespace */}}
{{- define "anteroom.metadata" -}}
name: {{ .object | default .name }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "anteroom.labels" . | nindent 2 }}
{{- end }}

{{/* metadata of an object of the cluster */}}
{{- define "anteroom.clusterMetadata" -}}
name: {{ .object | default .name }}
labels:
  {{- include "anteroom.labels" . | nindent 2 }}
{{- end }}

{{/* The subject of a binding: (dict "root" $ "name" the account's) */}}
{{- define "anteroom.subjects" -}}
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
{{- end }}

{{/* An image: (dict "root" $ "image" repository, tag and digest "tag" the tag without one) */}}
{{- define "anteroom.image" -}}
{{- $name := .image.repository -}}
{{- with .root.Values.global.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .image.digest }}{{ $name }}@{{ .image.digest }}{{ else }}{{ $name }}:{{ .image.tag | default .tag }}{{ end -}}
{{- end }}

{{/* Whether existing objects are scanned: a shadow reports nothing */}}
{{- define "anteroom.scans" -}}
{{ and .Values.features.backgroundScan.enabled (not .Values.features.shadow.enabled) }}
{{- end }}

{{/* An amount of memory as a number of Mi: in Mi or Gi, as the schema has it */}}
{{- define "anteroom.inMebibytes" -}}
{{- if hasSuffix "Gi" . }}{{ mul 1024 (trimSuffix "Gi" . | atoi) }}{{ else }}{{ trimSuffix "Mi" . | atoi }}{{ end -}}
{{- end }}

{{/* A container's limit of memory as a number of Mi */}}
{{- define "anteroom.mebibytes" -}}
{{- $mebibytes := include "anteroom.inMebibytes" . | atoi }}
{{- if lt (int $mebibytes) 128 }}{{ fail (printf "resources.limits.memory: %s is too little, 128Mi is the least" .) }}{{ end }}
{{- $mebibytes -}}
{{- end }}

{{/* Two thirds of it */}}
{{- define "anteroom.twoThirds" -}}
{{ div (mul 2 (include "anteroom.mebibytes" . | atoi)) 3 }}Mi
{{- end }}

{{/* What every pod has: (dict "root" $ "name" … "values" the part's) */}}
{{- define "anteroom.podSpec" -}}
serviceAccountName: {{ .name }}
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName | default .root.Values.global.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with merge (dict) .values.nodeSelector .root.Values.global.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat .values.tolerations .root.Values.global.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The pods of a part over nodes and zones */}}
{{- define "anteroom.spread" -}}
topologySpreadConstraints:
{{- with .values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ .root.Values.spread.nodes }}
    labelSelector:
      matchLabels:
        {{- include "anteroom.selector" . | nindent 8 }}
  {{- with .root.Values.spread.zones }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: {{ . }}
    labelSelector:
      matchLabels:
        {{- include "anteroom.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What every container may not do */}}
{{- define "anteroom.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A disruption budget for a part */}}
{{- define "anteroom.budget" -}}
{{- if .values.podDisruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "anteroom.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ toJson .values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "anteroom.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{/* An account whose token is mounted only where a pod says so */}}
{{- define "anteroom.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "anteroom.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end }}

{{/* An environment variable, unless it is empty: (list "NAME" value) */}}
{{- define "anteroom.variable" -}}
{{- $value := index . 1 -}}
{{- if kindIs "slice" $value }}{{ $value = join (index . 2) $value }}{{ end -}}
{{- if ne (toString $value) "" }}
- {name: {{ index . 0 }}, value: {{ toString $value | quote }}}
{{- end }}
{{- end }}
