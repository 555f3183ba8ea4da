"""Standard data sets, downloaded when they are first asked for."""
