{{/* The operator's flags; docs/operator.md has their meaning. */}}
{{- define "pipelineserve.arguments" -}}
- --engine-image={{ include "pipelineserve.image" (dict "image" .Values.engine.image "root" .) }}
- --sglang-image={{ include "pipelineserve.image" (dict "image" .Values.sglang.image "root" .) }}
- --controller-image={{ include "pipelineserve.image" (dict "image" .Values.controller.image "root" .) }}
- --image-pull-policy={{ .Values.image.pullPolicy }}
{{- if .Values.watchNamespaces }}
- --namespace={{ join "," .Values.watchNamespaces }}
{{- else }}
- --all-namespaces
{{- end }}
- --lease-namespace={{ .Release.Namespace }}
- --lease-name={{ include "pipelineserve.operator" . }}
- --operator-address={{ include "pipelineserve.operator" . }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}
- --attend-port=8443
{{- if eq .Values.certificate.source "CertManager" }}
- --certificate-folder=/etc/pipelineserve/certificate
{{- else }}
- --authority-secret={{ include "pipelineserve.authoritySecret" . }}
{{- end }}
{{- /* 0 leaves it to the cluster. */}}
- --user-id={{ .Values.servingPods.userId | default 0 | int }}
{{- /* Quoted, since it may end with a colon. */}}
- '--listen-host={{ .Values.servingPods.listenHost }}'
- --monitoring-namespace={{ .Values.monitoring.namespace }}
- --log-format={{ .Values.logging.format }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}
