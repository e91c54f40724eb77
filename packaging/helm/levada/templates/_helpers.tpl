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
