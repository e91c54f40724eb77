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
{{- if include "levada.tls" . }}
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

{{/* Whether there may be certificates. */}}
{{- define "levada.tls" -}}
{{- if or .Values.tls.secrets .Values.sites.enabled }}true{{ end }}
{{- end }}

{{- define "levada.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
env:
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- with .Values.env }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{/* What the configuration names. */}}
{{- define "levada.mounts" -}}
- name: config
  mountPath: /etc/levada
  readOnly: true
- name: peering
  mountPath: /etc/levada-peering
  readOnly: true
{{- range $at, $secret := .Values.tls.secrets }}
- name: tls-{{ $at }}
  mountPath: /etc/levada-tls/{{ $secret }}
  readOnly: true
{{- end }}
- name: run
  mountPath: /run/levada
- name: cache
  mountPath: /var/cache/levada
{{- if .Values.sites.enabled }}
- name: sites
  mountPath: /run/levada-sites
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The container that writes the sites of Ingress and Gateway resources. */}}
{{- define "levada.sites" -}}
{{ include "levada.image" . }}
args:
  - kubernetes
  - sites
  - --output=/run/levada-sites
  - --class={{ .Values.sites.class }}
  - --https=0.0.0.0:{{ .Values.tls.port }}
  {{- if .Values.tls.http3 }}
  - --http3
  {{- end }}
  {{- with .Values.sites.namespace }}
  - --namespace={{ . }}
  {{- end }}
  {{- if .Values.sites.status }}
  - --status
  {{- if .Values.sites.addresses }}
  {{- range .Values.sites.addresses }}
  - --address={{ . }}
  {{- end }}
  {{- else }}
  - --service={{ .Release.Namespace }}/{{ include "levada.name" . }}
  {{- end }}
  {{- end }}
{{- end }}
