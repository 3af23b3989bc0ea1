"""C++ that attention and the CPU operators share: headers, and how a source is built."""
