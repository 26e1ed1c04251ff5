{{- define "concur-proxy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "concur-proxy.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "concur-proxy.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "concur-proxy.selector" -}}
app.kubernetes.io/name: {{ include "concur-proxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "concur-proxy.labels" -}}
{{ include "concur-proxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Discovery by the Kubernetes API: the one thing that needs an account. */}}
{{- define "concur-proxy.discovers" -}}
{{- if dig "fleet" "kubernetes_service" "" .Values.config }}true{{ end -}}
{{- end -}}

{{- define "concur-proxy.makesAccount" -}}
{{- if kindIs "bool" .Values.serviceAccount.create -}}
{{- if .Values.serviceAccount.create }}true{{ end -}}
{{- else -}}
{{- include "concur-proxy.discovers" . -}}
{{- end -}}
{{- end -}}

{{- define "concur-proxy.account" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if include "concur-proxy.makesAccount" . -}}
{{- include "concur-proxy.fullname" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{/* The image with more in it, where the settings need that. */}}
{{- define "concur-proxy.image" -}}
{{- $store := toString (dig "batch" "store" "" .Values.config) -}}
{{- $more := or (include "concur-proxy.discovers" .) (dig "tracing" "endpoint" "" .Values.config) (contains "://" $store) -}}
{{- $tag := .Values.image.tag | default (printf "%s%s" .Chart.AppVersion (ternary "-full" "" (not (empty $more)))) -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}
{{- end -}}

{{- define "concur-proxy.grace" -}}
{{- dig "server" "grace_s" 30 .Values.config | float64 | ceil | int -}}
{{- end -}}

{{- define "concur-proxy.termination" -}}
{{- $needed := add (int .Values.preStopSeconds) (int (include "concur-proxy.grace" .)) -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- add $needed 10 -}}
{{- else -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{- define "concur-proxy.scheme" -}}
{{- if .Values.tls.existingSecret }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{- define "concur-proxy.probe" -}}
{{- if .top.Values.tls.clientCA -}}
tcpSocket: {port: http}
{{- else -}}
httpGet: {path: {{ .path }}, port: http, scheme: {{ include "concur-proxy.scheme" .top }}}
{{- end }}
{{ toYaml .timing }}
{{- end -}}

{{- define "concur-proxy.keysSecret" -}}
{{- if .Values.auth.existingSecret -}}
{{- .Values.auth.existingSecret -}}
{{- else if .Values.auth.keys -}}
{{- include "concur-proxy.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{- define "concur-proxy.adminSecret" -}}
{{- if .Values.admin.existingSecret -}}
{{- .Values.admin.existingSecret -}}
{{- else if .Values.admin.token -}}
{{- include "concur-proxy.fullname" . }}-admin
{{- end -}}
{{- end -}}

{{- define "concur-proxy.configName" -}}
{{- include "concur-proxy.fullname" . }}-config
{{- end -}}
