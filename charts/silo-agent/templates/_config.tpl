{{/* The files of the agent's ConfigMap: silo.yaml (anchorage_silo.config), policy.yaml and the authority's certificate. */}}
{{- define "silo-agent.files" -}}
silo.yaml: |
  silo: {{ .Values.enrolment.silo | quote }}
  federation: {{ .Values.enrolment.federation | quote }}
  server: {{ .Values.enrolment.server | quote }}
  enrolment: {{ .Values.enrolment.enrolment | quote }}
  authority: /etc/anchorage/ca.pem
  {{- if include "silo-agent.token" . }}
  token: /etc/anchorage-enrolment/token
  {{- end }}
  state: /var/lib/anchorage
  {{- if .Values.sharedWeights }}
  sharedWeights: /var/lib/anchorage-weights
  {{- end }}
  labels: {{ .Values.enrolment.labels | quote }}
  data:
    {{- toYaml .Values.data | nindent 4 }}
  dataRoot: /data
  {{- if .Values.policy }}
  policy: /etc/anchorage/policy.yaml
  {{- end }}
  {{- include "silo-agent.options" . | nindent 2 }}
  probesListen: "[::]:8080"
  stay: true
  patienceSeconds: 0
  {{- with .Values.proxy }}
  proxy: {{ . | quote }}
  {{- end }}
{{- with .Values.policy }}
policy.yaml: |
  {{- toYaml . | nindent 2 }}
{{- end }}
ca.pem: |
  {{- .Values.enrolment.authority | trim | nindent 2 }}
{{- end -}}
