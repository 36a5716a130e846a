"""Every scheme of the comparison with 16 answers, for tests on small tasks."""

from __future__ import annotations

from invgnn.schemes import COS, EXPL, NAT, SS, TRIG, WGLE, Keyed, Published
from invgnn.schemes.published import literal

FEATURES = 80
SCHEMES = {
    "SS": SS(Keyed(m=16)),
    "COS": COS(m=16, per_step=16),
    "TRIG": TRIG(m=16, edges=0.05, per_step=16),
    "NAT": NAT(features=16, nodes=0.3, graphs_share=0.4, nodes_share=0.2, m=24),
    "EXPL": EXPL(weight=100.0, margin=0.1, least=20),
    "WGLE": WGLE(m=16, weight=5.0),
    "literal": Published(m=16, beta=1e-4, nu=1.0, gap=0.0, recipe=literal().recipe),
    "Published": Published(m=16, gap=0.0),
    "Keyed": Keyed(m=16),
}
"""Every scheme of the suite, with 16 answers."""
EPOCHS = 40
