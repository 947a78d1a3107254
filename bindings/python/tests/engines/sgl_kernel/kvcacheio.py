"""Copies between SGLang's device pool (layer by layer) and its host pool (pages first), on a CPU."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*unused, **unused_too):
        raise NotImplementedError(name)

    return missing


def transfer_kv_direct(src_layers, dst_layers, src_indices, dst_indices, page_size):
    for source, target in zip(src_layers, dst_layers):
        target[dst_indices] = source[src_indices]


def transfer_kv_all_layer_direct_lf_pf(src_ptrs, dst_ptrs, src_indices, dst_indices, page_size):
    layers = len(src_ptrs) // len(dst_ptrs)
    pages, slots = (dst_indices.view(-1, page_size)[:, 0] // page_size).tolist(), src_indices.view(-1, page_size)
    for plane, target in enumerate(dst_ptrs):
        for layer in range(layers):
            for i, page in enumerate(pages):
                target[page, layer] = src_ptrs[plane * layers + layer][slots[i]]


def transfer_kv_per_layer_direct_pf_lf(src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size):
    pages, slots = (src_indices.view(-1, page_size)[:, 0] // page_size).tolist(), dst_indices.view(-1, page_size)
    for source, target in zip(src_ptrs, dst_ptrs):
        for i, page in enumerate(pages):
            target[slots[i]] = source[page, layer_id]
