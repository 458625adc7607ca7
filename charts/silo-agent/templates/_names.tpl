{{/* Name of the release's objects. */}}
{{- define "silo-agent.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods are chosen; they never change. */}}
{{- define "silo-agent.selector" -}}
app.kubernetes.io/name: anchorage-silo
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "silo-agent.labels" -}}
{{ include "silo-agent.selector" . }}
app.kubernetes.io/component: silo
app.kubernetes.io/part-of: anchorage
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
anchorage.dev/federation: {{ .Values.enrolment.federation | quote }}
anchorage.dev/silo: {{ .Values.enrolment.silo | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "silo-agent.image" -}}
{{- with .Values.images -}}
{{- default (printf "%s/anchorage-agent:%s" (trimSuffix "/" .registry) (default $.Chart.AppVersion .tag)) .agent -}}
{{- end -}}
{{- end -}}

{{- define "silo-agent.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "silo-agent.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the one-time token; empty: none, the agent has its certificate. */}}
{{- define "silo-agent.token" -}}
{{- if .Values.enrolment.existingSecret -}}
{{- .Values.enrolment.existingSecret -}}
{{- else if .Values.enrolment.token -}}
{{- include "silo-agent.fullname" . }}-enrolment
{{- end -}}
{{- end -}}
