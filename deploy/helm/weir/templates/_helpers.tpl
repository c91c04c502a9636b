{{- define "weir.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's name, with the chart's unless it is in it. Short enough for what is put behind it. */}}
{{- define "weir.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains (include "weir.name" .) .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "weir.name" .) | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "weir.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "weir.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "weir.secret" -}}
{{- default (include "weir.fullname" .) .Values.secret.name -}}
{{- end -}}

{{/* The config's `limits.memory` where it has none: nine tenths of the container's limit, because weir's memory stays within 1.1 times
it. weir finds the limit by itself only where nodes have control groups of version 2. */}}
{{- define "weir.memory" -}}
{{- $given := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if regexMatch "^[0-9]+(k|M|G|T|Ki|Mi|Gi|Ti)?$" $given -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $bytes := mul (regexFind "^[0-9]+" $given | int64) (get $units (regexFind "[A-Za-z]*$" $given) | int64) -}}
{{- printf "%dKiB" (div (mul $bytes 9) 10240) -}}
{{- end -}}
{{- end -}}

{{/* The names of a service inside the cluster, as a list of YAML. */}}
{{- define "weir.hosts" -}}
{{- $name := .name -}}
{{- range list "" (printf ".%s" .namespace) (printf ".%s.svc" .namespace) (printf ".%s.svc.cluster.local" .namespace) }}
- {{ printf "%s%s" $name . }}
{{- end -}}
{{- end -}}

{{/* The memory at which the autoscaler adds a replica: seven tenths of the container's limit. */}}
{{- define "weir.memoryTarget" -}}
{{- $own := include "weir.memory" . -}}
{{- if $own -}}
{{- printf "%dKi" (div (mul (trimSuffix "KiB" $own | int64) 7) 9) -}}
{{- end -}}
{{- end -}}

{{/* The scheme of the clients' port. `off` is a boolean in YAML. */}}
{{- define "weir.clientsScheme" -}}
{{- if has (toString (default false .Values.config.tls)) (list "false" "off") -}}http{{- else -}}https{{- end -}}
{{- end -}}

{{/* Not empty if replicas share a store. */}}
{{- define "weir.shared" -}}
{{- if not (has (toString (default "memory" .Values.config.store)) (list "memory")) -}}shared{{- end -}}
{{- end -}}

{{/* Replicas with a shared store need no affinity. */}}
{{- define "weir.sessionAffinity" -}}
{{- .Values.service.sessionAffinity | default (ternary "None" "ClientIP" (eq (include "weir.shared" .) "shared")) -}}
{{- end -}}

{{/* weir's config: what is written, and a default for each key that is not. No default is merged with what is written. */}}
{{- define "weir.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $admin := default dict $config.admin -}}
{{- $name := include "weir.fullname" . -}}
{{- $hosts := include "weir.hosts" (dict "name" $name "namespace" .Release.Namespace) | fromYamlArray -}}
{{- $operators := include "weir.hosts" (dict "name" (printf "%s-admin" $name) "namespace" .Release.Namespace) | fromYamlArray -}}
{{- $_ := set $config "admin" $admin -}}
{{- range list
      (list $config "listen" "0.0.0.0:8080")
      (list $config "allowed_hosts" $hosts)
      (list $config "drain" "25s")
      (list $config "keys" (list (dict "id" 1 "secret" "${WEIR_KEY}")))
      (list $admin "listen" "0.0.0.0:8081")
      (list $admin "auth" (dict "token" "${WEIR_ADMIN_TOKEN}"))
      (list $admin "allowed_hosts" $operators) -}}
{{- if not (hasKey (index . 0) (index . 1)) -}}
{{- $_ := set (index . 0) (index . 1) (index . 2) -}}
{{- end -}}
{{- end -}}
{{- if and (include "weir.shared" .) (not (hasKey $config "cluster")) -}}
{{- $_ := set $config "cluster" (dict "listen" "0.0.0.0:8082" "advertise" "${WEIR_POD_IP}:8082") -}}
{{- end -}}
{{- if not $config.keys -}}
{{- $_ := unset $config "keys" -}}
{{- end -}}
{{- $memory := include "weir.memory" . -}}
{{- if $memory -}}
{{- $_ := set $config "limits" (merge (dict) (default dict $config.limits) (dict "memory" $memory)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The ports are what the config says: nobody has to say them twice. */}}
{{- define "weir.clientsPort" -}}
{{- splitList ":" (include "weir.config" . | fromYaml).listen | last -}}
{{- end -}}

{{- define "weir.operatorsPort" -}}
{{- splitList ":" (include "weir.config" . | fromYaml).admin.listen | last -}}
{{- end -}}

{{- define "weir.clusterPort" -}}
{{- splitList ":" (include "weir.config" . | fromYaml).cluster.listen | last -}}
{{- end -}}
