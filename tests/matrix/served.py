"""What each server of the matrix serves. `MATRIX_FRAMEWORK` names the framework, `MATRIX_LEDGER` the ledger."""

import os

from tests.matrix.edge import build

application = build(os.environ["MATRIX_FRAMEWORK"], os.environ["MATRIX_LEDGER"])
