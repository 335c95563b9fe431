# SPDX-License-Identifier: Apache-2.0
"""[relay]: moorage-relay, which writes the hosts of a source to Kafka."""

from oslo_config import cfg

GROUP = "relay"

OPTS = (
    cfg.StrOpt(
        "name",
        default="moorage-relay",
        help=(
            "Relays of one name elect one leader, which writes to the topics; the "
            "others wait. It is their consumer group and their transactional id in "
            "Kafka, for which the user needs rights. Relays that write to different "
            "topics need different names. Related options: those of [kafka]; [moorage] "
            "source, which the leader reads, and refresh_interval."
        ),
    ),
)
