# SPDX-License-Identifier: Apache-2.0
"""[telemetry]: how the scheduler is seen."""

from oslo_config import cfg

GROUP = "telemetry"

OPTS = (
    cfg.PortOpt(
        "http_port",
        help=(
            "TCP port of /metrics (for Prometheus), /healthz (the process lives) and "
            "/readyz (requests can be served; else 503, and why). With several workers "
            "it is one port, and /metrics tells the sum of them. 0: any that is free; "
            "the log says which. Unset: none. Related option: http_address."
        ),
    ),
    cfg.HostAddressOpt(
        "http_address",
        default="127.0.0.1",
        help=(
            "Address that http_port is listened on. Whoever reaches it reads figures "
            "and the reasons for not being ready: nobody is asked for a password."
        ),
    ),
    cfg.BoolOpt(
        "tracing",
        default=False,
        help=(
            "Whether to export spans of requests over OTLP (HTTP, protobuf) with "
            "OpenTelemetry's SDK, which the extra moorage[tracing] installs. Where to, "
            "how many and as whom is said by OpenTelemetry's own environment "
            "variables, such as OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER and "
            "OTEL_SERVICE_NAME. A process that has an SDK already, for example by "
            "opentelemetry-instrument, uses that, whatever is said here. Related "
            "option: [oslo_messaging_tracing] tracing_enabled, for spans of messages."
        ),
    ),
)
