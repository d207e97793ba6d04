-- SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
--
-- XCP-i, what XCP routers say to each other over UDP, for Wireshark and tshark:
--
--   tshark -X lua_script:wireshark/xcp-edge.lua -Y xcpi -V
--
-- docs/design/xcp-i.md has the format. Tags are shown, not verified.

local PORT, VERSION, MAX_LENGTH = 0x5843, 1, 8952
local HEAD, TAG, MAX_CORRECTIONS = 24, 16, 64
local MIN_PROBE_LENGTH = HEAD + 12 + TAG
local SINGLE = 0xffff
local REQUEST, ACKNOWLEDGEMENT, PROBE, REPORT, BYE = 1, 2, 3, 4, 5
local KINDS = { "request", "acknowledgement", "probe", "report", "bye" }
local STATUSES = { "accepted", "cookie needed", "busy", "refused" }
local ROLES = { "asker", "answerer" }

local xcpi = Proto("xcpi", "Explicit Control Protocol between routers (XCP-i)")

local f = {
	version = ProtoField.uint8("xcpi.version", "Version"),
	kind = ProtoField.uint8("xcpi.kind", "Kind", base.DEC, KINDS),
	length = ProtoField.uint16("xcpi.length", "Length, in bytes"),
	stream = ProtoField.uint64("xcpi.stream", "Stream"),
	sequence = ProtoField.uint64("xcpi.sequence", "Sequence number"),
	asker = ProtoField.ipv6("xcpi.asker", "Router that asks"),
	answerer = ProtoField.ipv6("xcpi.answerer", "Router that is asked"),
	cookie = ProtoField.bytes("xcpi.cookie", "Cookie"),
	interval = ProtoField.uint32("xcpi.interval_us", "Time between single probes, in us"),
	size = ProtoField.uint16("xcpi.size_B", "Length of a single probe, in B"),
	train_packets = ProtoField.uint16("xcpi.train_packets", "Packets of the train"),
	train_size = ProtoField.uint16("xcpi.train_size_B", "Length of the train's packets, in B"),
	lowest = ProtoField.uint64("xcpi.lowest_Bps", "Rate of the train's first gap, in B/s"),
	highest = ProtoField.uint64("xcpi.highest_Bps", "Rate of the train's last gap, in B/s"),
	estimate = ProtoField.uint64("xcpi.estimate_Bps", "Estimated so far, in B/s"),
	status = ProtoField.uint8("xcpi.status", "Status", base.DEC, STATUSES),
	sent = ProtoField.uint64("xcpi.sent_ns", "Sent at, in ns"),
	number = ProtoField.uint16("xcpi.number", "Number in the train"),
	train = ProtoField.uint16("xcpi.train", "Train"),
	padding = ProtoField.bytes("xcpi.padding", "Padding"),
	xcp = ProtoField.uint64("xcpi.xcp_B", "XCP packets sent, in B"),
	probes = ProtoField.uint64("xcpi.probes", "Probes sent"),
	count = ProtoField.uint16("xcpi.corrections", "Corrections of probes' times"),
	behind = ProtoField.uint32("xcpi.behind", "Sequence numbers before this report"),
	offset = ProtoField.int32("xcpi.offset_ns", "Sent later by, in ns"),
	role = ProtoField.uint8("xcpi.role", "Sender", base.DEC, ROLES),
	tag = ProtoField.bytes("xcpi.tag", "Tag"),
}
local fields = {}
for _, field in pairs(f) do
	fields[#fields + 1] = field
end
xcpi.fields = fields

local malformed = ProtoExpert.new("xcpi.malformed", "Malformed XCP-i message",
	expert.group.MALFORMED, expert.severity.ERROR)
xcpi.experts = { malformed }

-- What stands behind each other in messages of fixed length, and its length.
local LAYOUTS = {
	[REQUEST] = {
		{ f.asker, 16 }, { f.answerer, 16 },
		{ f.cookie, 16 }, { f.interval, 4 }, { f.size, 2 },
		{ f.train_packets, 2 }, { f.train_size, 2 }, { f.lowest, 8 }, { f.highest, 8 }, { f.estimate, 8 },
	},
	[ACKNOWLEDGEMENT] = {
		{ f.status, 1 }, { f.cookie, 16 }, { f.interval, 4 }, { f.train_packets, 2 },
	},
	[PROBE] = { { f.sent, 8 }, { f.number, 2 }, { f.train, 2 } },
	[REPORT] = { { f.xcp, 8 }, { f.probes, 8 }, { f.count, 2 } },
	[BYE] = { { f.role, 1 } },
}

-- The length of a layout's fields.
local function size_of(layout)
	local sum = 0
	for _, field in ipairs(layout) do
		sum = sum + field[2]
	end
	return sum
end

-- Whether a request asks for something that can be sent.
local function is_request_good(body)
	local interval, size = body(48, 4):uint(), body(52, 2):uint()
	local packets, train_size = body(54, 2):uint(), body(56, 2):uint()
	local lowest, highest = body(58, 8):uint64(), body(66, 8):uint64()
	local function fits(length)
		return length >= MIN_PROBE_LENGTH and length <= MAX_LENGTH
	end
	return (interval == 0 or fits(size))
		and (packets == 0 or (fits(train_size) and lowest > UInt64(0) and lowest <= highest))
end

local function is_padding_good(body)
	for i = size_of(LAYOUTS[PROBE]), body:len() - 1 do
		if body(i, 1):uint() ~= 0 then
			return false
		end
	end
	return true
end

-- Whether what is between head and tag is as it must be.
local function is_body_good(kind, body)
	local size = body:len() - size_of(LAYOUTS[kind])
	if size < 0 then
		return false
	elseif kind == PROBE then
		return is_padding_good(body)
	elseif kind == REPORT then
		local count = body(16, 2):uint()
		return count <= MAX_CORRECTIONS and size == 8 * count
	elseif size ~= 0 then
		return false
	elseif kind == REQUEST then
		return is_request_good(body)
	elseif kind == ACKNOWLEDGEMENT then
		return STATUSES[body(0, 1):uint()] ~= nil
	end
	return ROLES[body(0, 1):uint()] ~= nil
end

local function add_rest(tree, kind, rest)
	if kind == PROBE then
		tree:add(f.padding, rest)
	elseif kind == REPORT then
		for i = 0, rest:len() - 8, 8 do
			tree:add(f.behind, rest(i, 4))
			tree:add(f.offset, rest(i + 4, 4))
		end
	end
end

local function add_body(tree, kind, body)
	local at = 0
	for _, field in ipairs(LAYOUTS[kind]) do
		local item = tree:add(field[1], body(at, field[2]))
		if field[1] == f.number and body(at, 2):uint() == SINGLE then
			item:append_text(" (single)")
		end
		at = at + field[2]
	end
	if at < body:len() then
		add_rest(tree, kind, body(at))
	end
end

-- Whether a whole message is as it must be, apart from its tag.
local function is_good(tvb)
	local size = tvb:len()
	if size < HEAD + TAG or size > MAX_LENGTH or tvb(4, 1):uint() ~= VERSION then
		return false
	end
	local kind = tvb(5, 1):uint()
	return KINDS[kind] and tvb(6, 2):uint() == size and size > HEAD + TAG
		and is_body_good(kind, tvb(HEAD, size - HEAD - TAG))
end

local function add_head(tree, tvb)
	tree:add(f.version, tvb(4, 1))
	tree:add(f.kind, tvb(5, 1))
	tree:add(f.length, tvb(6, 2))
	tree:add(f.stream, tvb(8, 8))
	tree:add(f.sequence, tvb(16, 8))
end

function xcpi.dissector(tvb, pinfo, root)
	local size = tvb:len()
	if size < 4 or tvb(0, 4):string() ~= "XCPi" then
		return 0
	end
	pinfo.cols.protocol = "XCP-i"
	local tree = root:add(xcpi, tvb())
	if size < tvb:reported_len() then
		tree:append_text(", cut by the capture")
		return size
	end
	if not is_good(tvb) then
		tree:add_proto_expert_info(malformed)
		return size
	end
	local kind = tvb(5, 1):uint()
	tree:append_text(", " .. KINDS[kind])
	pinfo.cols.info = "XCP-i " .. KINDS[kind]
	add_head(tree, tvb)
	add_body(tree, kind, tvb(HEAD, size - HEAD - TAG))
	tree:add(f.tag, tvb(size - TAG, TAG))
	return size
end

DissectorTable.get("udp.port"):add(PORT, xcpi)
