"""Other libraries' interfaces over KVCL's store."""
