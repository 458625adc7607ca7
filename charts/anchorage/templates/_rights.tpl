{{/* What the operator may do, where federations live. Secrets are read by name only, never listed. */}}
{{- define "anchorage.rules" -}}
- apiGroups: [anchorage.dev]
  resources: [federations, silos]
  verbs: [get, list, watch]
- apiGroups: [anchorage.dev]
  resources: [federations/status, silos/status]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch]
{{- if .Values.rbac.federations }}
{{- $keys := list }}
{{- $invitations := list }}
{{- range $federation, $silos := .Values.rbac.federations }}
{{- $keys = concat $keys (list (printf "%s-authority" $federation) (printf "%s-server-tls" $federation)) }}
{{- if include "anchorage.mlflow.auth" $ }}
{{- $keys = append $keys (printf "%s-tracking-login" $federation) }}
{{- end }}
{{- range $silos }}
{{- $invitations = append $invitations (printf "%s-enrolment" .) }}
{{- end }}
{{- end }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson $keys }}
  verbs: [get, patch]
{{- with $invitations }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson (uniq .) }}
  verbs: [get, patch, delete]
{{- end }}
# The API server knows no name yet when an object is created.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- else }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch, delete]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch]
{{- if .Values.authority.issuerRef.name }}
- apiGroups: [cert-manager.io]
  resources: [certificaterequests]
  verbs: [get, create]
{{- end }}
{{- end -}}
