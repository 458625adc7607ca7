{{/* Security context of a pod: the restricted Pod Security Standard. */}}
{{- define "anchorage.podSecurity" -}}
runAsNonRoot: true
{{- with int .Values.userId }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Security context of a container: the restricted Pod Security Standard, and a read-only root file system. */}}
{{- define "anchorage.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Egress to name servers: pods of the cluster, by the port of the Service or of the pods (5353 on OpenShift), and those that are no pods. */}}
{{- define "anchorage.dns" -}}
- to:
    - namespaceSelector: {}
    {{- range .Values.networkPolicy.dnsCidrs | default (list "10.0.0.0/8" "100.64.0.0/10" "169.254.0.0/16" "172.16.0.0/12" "192.168.0.0/16" "fc00::/7" "fe80::/10") }}
    - ipBlock:
        cidr: {{ . | quote }}
    {{- end }}
  ports:
    {{- range $port := list 53 5353 }}
    {{- range $protocol := list "UDP" "TCP" }}
    - protocol: {{ $protocol }}
      port: {{ $port }}
    {{- end }}
    {{- end }}
{{- end -}}

{{/* Where a pod runs. Argument: the values of the pod. */}}
{{- define "anchorage.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- end -}}
