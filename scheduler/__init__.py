# SPDX-License-Identifier: Apache-2.0
"""The scheduler: from a request to the hosts that its instances go to."""

import warnings

# oslo.messaging imports oslo.service, and that imports eventlet even where threads are
# chosen: eventlet warns then that it is deprecated. None of it is used.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
