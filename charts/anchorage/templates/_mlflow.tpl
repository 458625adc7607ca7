{{- define "anchorage.mlflow.store" -}}
sqlite:////var/lib/mlflow/mlflow.db
{{- end -}}

{{/* Host names by which MLflow answers: it refuses any other Host header. */}}
{{- define "anchorage.mlflow.hosts" -}}
{{- $name := include "anchorage.mlflow.name" . -}}
{{- $service := printf "%s.%s.svc" $name .Release.Namespace -}}
{{- $names := list $name (printf "%s.%s" $name .Release.Namespace) $service (printf "%s.%s" $service .Values.operator.clusterDomain) -}}
{{- $hosts := list "localhost" "localhost:*" "127.0.0.1" "127.0.0.1:*" "[::1]" "[[]::1]:*" -}}
{{- range $names -}}
{{- $hosts = concat $hosts (list . (printf "%s:%d" . (int $.Values.mlflow.service.port))) -}}
{{- end -}}
{{- concat $hosts .Values.mlflow.allowedHosts | uniq | join "," -}}
{{- end -}}

{{/* What MLflow's two containers share. */}}
{{- define "anchorage.mlflow.container" -}}
image: {{ include "anchorage.image" (list . "mlflow") | quote }}
imagePullPolicy: {{ .Values.images.pullPolicy | quote }}
command: [python3, -m, mlflow]
env:
  - name: HOME
    value: /tmp
  - name: MLFLOW_DISABLE_TELEMETRY
    value: "true"
  - name: DO_NOT_TRACK
    value: "true"
  - name: MLFLOW_SERVER_ENABLE_JOB_EXECUTION
    value: "false"
  {{- with .Values.mlflow.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .Values.mlflow.resources | nindent 2 }}
securityContext:
  {{- include "anchorage.containerSecurity" . | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  - name: state
    mountPath: /var/lib/mlflow
  - name: tmp
    mountPath: /tmp
  {{- with .Values.mlflow.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
