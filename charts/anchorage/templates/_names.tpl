{{/* Name of the release's objects. */}}
{{- define "anchorage.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "anchorage.operator.name" -}}
{{- include "anchorage.fullname" . }}-operator
{{- end -}}

{{- define "anchorage.mlflow.name" -}}
{{- include "anchorage.fullname" . }}-mlflow
{{- end -}}

{{/* MLflow's volume claim. */}}
{{- define "anchorage.mlflow.claim" -}}
{{- default (include "anchorage.mlflow.name" .) .Values.mlflow.persistence.existingClaim -}}
{{- end -}}

{{/* Labels by which pods are chosen; they never change. Argument: list of root and component. */}}
{{- define "anchorage.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: anchorage-{{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- end -}}

{{/* Labels of every object. Argument: list of root and component. */}}
{{- define "anchorage.labels" -}}
{{- $root := index . 0 -}}
{{ include "anchorage.selector" . }}
app.kubernetes.io/component: {{ index . 1 | quote }}
app.kubernetes.io/part-of: anchorage
app.kubernetes.io/managed-by: {{ $root.Release.Service | quote }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{/* Name of an image. Argument: list of root and part. */}}
{{- define "anchorage.image" -}}
{{- $root := index . 0 -}}
{{- $images := $root.Values.images -}}
{{- $part := index . 1 -}}
{{- if get $images $part -}}
{{- get $images $part -}}
{{- else if eq $part "mlflow" -}}
{{- include "anchorage.image" (list $root "server") -}}
{{- else -}}
{{- printf "%s/anchorage-%s:%s" (trimSuffix "/" $images.registry) $part (default $root.Chart.AppVersion $images.tag) -}}
{{- end -}}
{{- end -}}

{{/* The operator's account. */}}
{{- define "anchorage.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "anchorage.operator.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Name of the operator's objects of the whole cluster. */}}
{{- define "anchorage.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "anchorage.operator.name" .) -}}
{{- end -}}

{{/* Namespaces that are watched by name, as JSON; empty: all, or those with the labels. */}}
{{- define "anchorage.namespaces" -}}
{{- if eq .Values.rbac.scope "Cluster" -}}
[]
{{- else -}}
{{- default (ternary (list) (list .Release.Namespace) (not (empty .Values.watch.labels))) .Values.watch.namespaces | uniq | sortAlpha | toJson -}}
{{- end -}}
{{- end -}}

{{/* Selectors of the watched namespaces, as JSON: those named, those with the labels, or all. */}}
{{- define "anchorage.watchedSelectors" -}}
{{- $names := include "anchorage.namespaces" . | fromJsonArray -}}
{{- $selectors := list -}}
{{- if $names -}}
{{- $selectors = append $selectors (dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" $names))) -}}
{{- end -}}
{{- if .Values.watch.labels -}}
{{- $selectors = append $selectors (dict "matchLabels" .Values.watch.labels) -}}
{{- end -}}
{{- default (list (dict)) $selectors | toJson -}}
{{- end -}}

{{/* MLflow for federations that name none; empty: none. */}}
{{- define "anchorage.trackingUri" -}}
{{- if .Values.defaults.trackingUri -}}
{{- .Values.defaults.trackingUri -}}
{{- else if .Values.mlflow.enabled -}}
{{- include "anchorage.mlflow.uri" . -}}
{{- end -}}
{{- end -}}
