{{- define "anchorage.mlflow.store" -}}
sqlite:////var/lib/mlflow/mlflow.db
{{- end -}}

{{/* Whether MLflow asks for a log-in; empty: it does not. An MLflow of this release that ran without goes on without. */}}
{{- define "anchorage.mlflow.auth" -}}
{{- if .Values.mlflow.enabled -}}
{{- $mode := dig "auth" "mode" "Auto" .Values.mlflow -}}
{{- if eq $mode "On" -}}
true
{{- else if eq $mode "Auto" -}}
{{- $runs := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "anchorage.mlflow.name" .) -}}
{{- if or (not $runs) (dig "metadata" "annotations" "anchorage.dev/log-in" "" $runs) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "anchorage.mlflow.loginSecret" -}}
{{- default (printf "%s-login" (include "anchorage.mlflow.name" .)) (dig "auth" "existingSecret" "" .Values.mlflow) -}}
{{- end -}}

{{/* Address of the chart's MLflow. */}}
{{- define "anchorage.mlflow.uri" -}}
{{- printf "http://%s.%s.svc.%s:%d" (include "anchorage.mlflow.name" .) .Release.Namespace .Values.operator.clusterDomain (int .Values.mlflow.service.port) -}}
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
  {{- if include "anchorage.mlflow.auth" . }}
  - name: MLFLOW_AUTH_CONFIG_PATH
    value: /etc/mlflow/auth.ini
  - name: ANCHORAGE_MLFLOW_LOGIN
    value: /etc/mlflow-login
  {{- range $variable, $key := dict "MLFLOW_AUTH_ADMIN_PASSWORD" "admin-password" "MLFLOW_FLASK_SERVER_SECRET_KEY" "session-key" }}
  - name: {{ $variable }}
    valueFrom:
      secretKeyRef:
        name: {{ include "anchorage.mlflow.loginSecret" $ | quote }}
        key: {{ $key }}
  {{- end }}
  {{- end }}
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
  {{- if include "anchorage.mlflow.auth" . }}
  - name: auth
    mountPath: /etc/mlflow
    readOnly: true
  - name: login
    mountPath: /etc/mlflow-login
    readOnly: true
  {{- end }}
  {{- with .Values.mlflow.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
