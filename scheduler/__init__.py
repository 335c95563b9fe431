# SPDX-License-Identifier: Apache-2.0
"""The scheduler: from a request to the hosts that its instances go to."""

import warnings

# oslo.messaging imports oslo.service, which imports eventlet even if its threading
# backend is chosen. eventlet then warns that it is deprecated; Moorage does not use it.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
