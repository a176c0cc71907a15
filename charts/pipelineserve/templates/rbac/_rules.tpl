{{/* What the operator may do where it looks after resources: the table in docs/operator.md, which a test compares. */}}
{{- define "pipelineserve.rules" -}}
- apiGroups: [pipelineserve.dev]
  resources: [pipelineserves]
  verbs: [get, list, watch]
- apiGroups: [pipelineserve.dev]
  resources: [pipelineserves/status]
  verbs: [patch]
- apiGroups: [pipelineserve.dev]
  resources: [pipelineserves/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [serviceaccounts, configmaps, services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
- apiGroups: [apps]
  resources: [statefulsets, controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors, prometheusrules]
  verbs: [get, list, create, patch, delete]
{{- end -}}

{{/* In the operator's own namespace. */}}
{{- define "pipelineserve.ownRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "pipelineserve.operator" . }}]
  verbs: [get, update]
{{- if ne .Values.certificate.source "CertManager" }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "pipelineserve.authoritySecret" . }}]
  verbs: [get, patch]
{{- end }}
{{- end -}}

{{- define "pipelineserve.subjects" -}}
- kind: ServiceAccount
  name: {{ include "pipelineserve.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
