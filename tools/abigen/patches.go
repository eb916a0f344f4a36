package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

// chooseArm says which member of a union without a name becomes the field. The others become methods of the
// struct. A union that is not here, and an entry whose union or member is gone, stop the generator: a new
// kernel's header must be looked at by a person.
var chooseArm = map[string]string{
	"ib_uverbs_attr":                    "data",
	"ib_uverbs_flow_spec_eth":           "hdr",
	"ib_uverbs_flow_spec_ipv4":          "hdr",
	"ib_uverbs_flow_spec_tcp_udp":       "hdr",
	"ib_uverbs_flow_spec_ipv6":          "hdr",
	"ib_uverbs_flow_spec_action_tag":    "hdr",
	"ib_uverbs_flow_spec_action_drop":   "hdr",
	"ib_uverbs_flow_spec_action_handle": "hdr",
	"ib_uverbs_flow_spec_action_count":  "hdr",
	"ib_uverbs_flow_spec_tunnel":        "hdr",
	"ib_uverbs_flow_spec_esp":           "hdr",
	"ib_uverbs_flow_spec_gre":           "hdr",
	"ib_uverbs_flow_spec_mpls":          "hdr",
	"mlx5_ib_create_qp":                 "sq_buf_addr",
}

// preferName says which of several enumerators of one value String prints.
var preferName = map[string]string{
	"rdma_driver_id": "RDMA_DRIVER_IRDMA", // the i40iw driver is gone since 5.14, irdma took its number
}

// idEnum matches the enums that number objects, methods, attributes and commands. Their values go into 16-bit
// fields and table indexes of many types, so they stay untyped constants.
var idEnum = regexp.MustCompile(`^(uverbs_.*|mlx5_ib_(.*_)?(attrs|methods|objects)|rdma_nldev_(attr|command)|ib_uverbs_write_cmds)$`)

// flagEnum matches the enums whose values are bits to be combined.
var flagEnum = regexp.MustCompile(`(_flags?|_caps|_mask|_support|_fields|_offloads|_supp_uhw|_res_format|^ib_placement_type)$`)

// checkPatches fails when a patch names something that the table does not have.
func checkPatches(t *layout.Table) error {
	for tag, arm := range chooseArm {
		ty, ok := t.Type(tag)
		if !ok {
			return fmt.Errorf("patch chooseArm: there is no %s any more", tag)
		}
		i := slices.IndexFunc(ty.Fields, isAnonymousUnion)
		if i < 0 {
			return fmt.Errorf("patch chooseArm: %s has no union without a name any more", tag)
		}
		if !slices.ContainsFunc(ty.Fields[i].Type.Inline.Fields, func(f layout.Field) bool { return f.Name == arm }) {
			return fmt.Errorf("patch chooseArm: the union of %s has no member %s any more", tag, arm)
		}
	}
	for tag, name := range preferName {
		if !slices.ContainsFunc(enums(t), func(e *layout.Enum) bool {
			return e.Name == tag && slices.ContainsFunc(e.Values, func(c layout.Const) bool { return c.Name == name })
		}) {
			return fmt.Errorf("patch preferName: enum %s has no %s any more", tag, name)
		}
	}
	return nil
}

func enums(t *layout.Table) []*layout.Enum {
	var es []*layout.Enum
	for _, h := range t.Headers {
		es = append(es, h.Enums...)
	}
	return es
}

func isAnonymousUnion(f layout.Field) bool {
	return f.Name == "" && f.Size > 0 && f.Type.Inline != nil && f.Type.Inline.Kind == layout.Union
}

// fileName is the generated file of a header.
func fileName(header string) string {
	base := header[strings.LastIndexByte(header, '/')+1:]
	return "z" + strings.NewReplacer("-", "_", ".h", "").Replace(base) + ".go"
}
