{{- define "levada.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "levada.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "levada.labels" -}}
{{ include "levada.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "levada.secret" -}}
{{ .Values.peering.existingSecret | default (printf "%s-peering" (include "levada.name" .)) }}
{{- end }}

{{/* The lines of `config` that a running node cannot take: the table "What needs a restart" of docs/operate/change.md.
     [dns] can change but for its sockets and threads. */}}
{{- define "levada.fixed" -}}
{{- $table := "" }}
{{- range splitList "\n" .Values.config }}
{{- if regexMatch "^\\s*\\[" . }}{{ $table = regexFind "[a-z_]+" . }}{{ end }}
{{- $tables := has $table (list "runtime" "cache" "handoff" "route" "telemetry") }}
{{- $of_dns := and (eq $table "dns") (regexMatch "^\\s*(\\[dns\\]|listen|threads)" .) }}
{{- $keys := regexMatch "^\\s*(compress_workers|compress_queue|expose_tags)\\b" . }}
{{- if or $tables $of_dns $keys }}{{ . }}
{{ end }}
{{- end }}
{{- end }}

{{/* The listener for HTTPS. */}}
{{- define "levada.https" -}}
{{- with .Values.tls }}
{{- if .secrets }}
[[listen]]
address = "0.0.0.0:{{ .port }}"
http3 = {{ .http3 }}
tls = [
{{- range .secrets }}
  { certificate = "/etc/levada-tls/{{ . }}/tls.crt", key = "/etc/levada-tls/{{ . }}/tls.key" },
{{- end }}
]
{{- end }}
{{- end }}
{{- end }}

{{/* The ports for clients other than that of plain HTTP, as a Service has them. The port of HTTPS is the same at the
     pods: nodes offer HTTP/3 at the port where they listen. */}}
{{- define "levada.ports" -}}
{{- if .Values.tls.secrets }}
- name: https
  port: {{ .Values.tls.port }}
  targetPort: https
{{- if .Values.tls.http3 }}
- name: http3
  protocol: UDP
  port: {{ .Values.tls.port }}
  targetPort: http3
{{- end }}
{{- end }}
{{- if .Values.dns.enabled }}
- name: dns
  protocol: UDP
  port: 53
  targetPort: dns
- name: dns-tcp
  port: 53
  targetPort: dns-tcp
{{- end }}
{{- end }}
