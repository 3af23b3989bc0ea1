// FlashInfer attention variant: a row of a request sees the first kv_limit[row] of the
// request's keys. It goes into FlashInfer's generated source, inside no namespace.
struct HogwildSharedSegment : AttentionVariantBase {
  static constexpr bool use_softmax = true;

  uint32_t qo_len, kv_len, window_left;
  float sm_scale_log2;
  const int32_t* limit;

  template <typename Params>
  __device__ __host__ HogwildSharedSegment(const Params& params, uint32_t request, uint8_t*) {
    qo_len = params.get_qo_len(request);
    kv_len = params.get_kv_len(request);
    window_left = kv_len;
    sm_scale_log2 = params.sm_scale * math::log2e;
    limit = params.kv_limit + params.q_indptr[request];
  }

  // Tiles are padded with rows behind qo_len, which have no limit to read.
  REGISTER_LOGITS_MASK(params, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    return qo_idx < qo_len && kv_idx < static_cast<uint32_t>(limit[qo_idx]);
  })
};
