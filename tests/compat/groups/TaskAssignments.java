import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.api.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;

/**
 * Assigns tasks with Kafka's own assignor: reads a JSON array of groups from stdin, and writes an array with the
 * assignment of each.
 *
 * <p>A group: {"members": {ID: {"process": ID, "active": TASKS, "standby": TASKS, "offsets": {SUBTOPOLOGY:
 * {PARTITION: OFFSET}}}}, "topology": {SUBTOPOLOGY: {"partitions": N, "stateful": BOOLEAN}},
 * "standby_replicas": N}. TASKS: {SUBTOPOLOGY: [PARTITION…]}.
 */
public final class TaskAssignments {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode group : JSON.readTree(System.in)) {
            answers.add(assign(group));
        }
        JSON.writeValue(System.out, answers);
    }

    private static ObjectNode assign(JsonNode group) {
        var members = new HashMap<String, MemberMetadataAndStateImpl>();
        group.get("members").properties().forEach(entry -> members.put(entry.getKey(), member(entry.getValue())));
        var configs = AssignmentConfigsImpl.DEFAULT.withNumStandbyReplicas(group.get("standby_replicas").asInt());
        var assigned = new StickyTaskAssignor()
                .assign(new GroupSpecImpl(members, configs), new Topology(group.get("topology")));
        ObjectNode answer = JSON.createObjectNode();
        assigned.members().forEach((id, tasks) -> answer.set(id, written(tasks)));
        return answer;
    }

    private static MemberMetadataAndStateImpl member(JsonNode row) {
        return new MemberMetadataAndStateImpl(
                Optional.empty(),
                Optional.empty(),
                row.get("process").asText(),
                Map.of(),
                tasks(row.get("active")),
                tasks(row.get("standby")),
                Map.of(),
                offsets(row.get("offsets")),
                Map.of());
    }

    private static Map<String, Map<Integer, Long>> offsets(JsonNode rows) {
        var offsets = new HashMap<String, Map<Integer, Long>>();
        rows.properties().forEach(entry -> {
            var partitions = new HashMap<Integer, Long>();
            entry.getValue()
                    .properties()
                    .forEach(each -> partitions.put(Integer.valueOf(each.getKey()), each.getValue().asLong()));
            offsets.put(entry.getKey(), partitions);
        });
        return offsets;
    }

    private static Map<String, Set<Integer>> tasks(JsonNode rows) {
        var tasks = new HashMap<String, Set<Integer>>();
        rows.properties().forEach(entry -> {
            var partitions = new HashSet<Integer>();
            entry.getValue().forEach(partition -> partitions.add(partition.asInt()));
            tasks.put(entry.getKey(), partitions);
        });
        return tasks;
    }

    private static ObjectNode written(MemberAssignment tasks) {
        ObjectNode row = JSON.createObjectNode();
        row.set("active", written(tasks.activeTasks()));
        row.set("standby", written(tasks.standbyTasks()));
        return row;
    }

    private static ObjectNode written(Map<String, Set<Integer>> tasks) {
        ObjectNode rows = JSON.createObjectNode();
        tasks.forEach((subtopology, partitions) -> rows.set(subtopology, JSON.valueToTree(new TreeSet<>(partitions))));
        return rows;
    }

    private record Topology(JsonNode rows) implements TopologyDescriber {
        @Override
        public List<String> subtopologies() {
            var names = new ArrayList<String>();
            rows.fieldNames().forEachRemaining(names::add);
            return names;
        }

        @Override
        public int maxNumInputPartitions(String subtopology) throws NoSuchElementException {
            return rows.get(subtopology).get("partitions").asInt();
        }

        @Override
        public boolean isStateful(String subtopology) throws NoSuchElementException {
            return rows.get(subtopology).get("stateful").asBoolean();
        }
    }
}
