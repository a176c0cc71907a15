{{/* Names: long ones keep their beginning, as a Service's name has at most 63 characters. */}}
{{- define "pipelineserve.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "pipelineserve.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "pipelineserve.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "pipelineserve.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pipelineserve.operator" -}}
{{- include "pipelineserve.fullname" . }}-operator
{{- end -}}

{{/* What is not in a namespace is named after its release's too, so that two releases do not meet. */}}
{{- define "pipelineserve.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "pipelineserve.operator" .) -}}
{{- end -}}

{{- define "pipelineserve.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pipelineserve.operator" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: expected the name of an account that is there, since serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "pipelineserve.selectorLabels" -}}
app.kubernetes.io/name: {{ include "pipelineserve.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Of an object or pod, of (dict "root" $ "component" NAME); the operator's unless said otherwise. */}}
{{- define "pipelineserve.labels" -}}
app.kubernetes.io/name: {{ include "pipelineserve.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component | default "operator" }}
app.kubernetes.io/part-of: pipelineserve
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image's full name, of (dict "image" IMAGE "root" $): its own registry and tag, else the operator's. */}}
{{- define "pipelineserve.image" -}}
{{- $registry := .image.registry | default .root.Values.image.registry -}}
{{- $tag := .image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ $tag }}{{ end -}}
{{- end -}}

{{- define "pipelineserve.certificateSecret" -}}
{{- include "pipelineserve.operator" . }}-tls
{{- end -}}

{{- define "pipelineserve.authoritySecret" -}}
{{- include "pipelineserve.operator" . }}-ca
{{- end -}}

{{/* Metadata of (dict "root" $ "name" NAME), with "namespace", "clusterWide" or "component" where they differ. */}}
{{- define "pipelineserve.metadata" -}}
name: {{ .name }}
{{- if not .clusterWide }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "pipelineserve.labels" . | nindent 2 }}
{{- end -}}
