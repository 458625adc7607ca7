{{/* The operator's settings file (anchorage_operator.settings). */}}
{{- define "anchorage.settings" -}}
images:
  server: {{ include "anchorage.image" (list . "server") | quote }}
  agent: {{ include "anchorage.image" (list . "agent") | quote }}
imagePullPolicy: {{ .Values.images.pullPolicy | quote }}
imagePullSecrets: {{ toJson .Values.images.pullSecrets }}
server: {{ toJson .Values.defaults.server }}
agent: {{ toJson .Values.defaults.agent }}
podOverrides: {{ toJson (omit (include "anchorage.podOverrides" . | fromJson) "admissionPolicy") }}
{{- if .Values.mlflow.enabled }}
reservedClaims: [{{ printf "%s/%s" .Release.Namespace (include "anchorage.mlflow.claim" .) | quote }}]
{{- end }}
{{- with include "anchorage.trackingUri" . }}
trackingUri: {{ . | quote }}
{{- end }}
userId: {{ int .Values.userId }}
{{- with .Values.defaults.trackingSecret }}
{{- if not (include "anchorage.trackingUri" $) }}
{{- fail "defaults.trackingSecret: set defaults.trackingUri (or mlflow.enabled), the MLflow that the credentials are for; they are sent to no other" }}
{{- end }}
trackingSecret: {{ . | quote }}
{{- end }}
{{- if include "anchorage.mlflow.auth" . }}
trackingLogin: {uri: {{ include "anchorage.mlflow.uri" . | quote }}, key: /etc/mlflow-login/federations-key}
{{- end }}
{{- with .Values.authority.issuerRef }}
{{- if .name }}
authorityIssuer: {{ toJson . }}
{{- end }}
{{- end }}
clusterDomain: {{ .Values.operator.clusterDomain | quote }}
{{- with .Values.networkPolicy.dnsCidrs }}
dnsCidrs: {{ toJson . }}
{{- end }}
watch: {{ include "anchorage.namespaces" . }}
watchLabels: {{ toJson .Values.watch.labels }}
resyncSeconds: {{ int .Values.operator.resyncSeconds }}
pollSeconds: {{ int .Values.operator.pollSeconds }}
upgradesAtOnce: {{ int .Values.operator.upgradesAtOnce }}
lease: {{ include "anchorage.operator.name" . | quote }}
listen: "[::]:8080"
{{- end -}}
